"""`lowtide bench tracker`: the life's tracker as a process of its own, and simulated workers that flush to it."""
