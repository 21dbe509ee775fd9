"""Workers: the Python processes that run one partition of one level, and the fork server that creates them."""
