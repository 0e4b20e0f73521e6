"""Tables, HTML pages, pictures of timelines, explanations of jobs, and the Perfetto export."""
