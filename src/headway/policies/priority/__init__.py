"""Priority policies, one file each."""
