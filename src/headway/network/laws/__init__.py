"""Laws of contention, one file each: the cost of a message's bytes among others."""
