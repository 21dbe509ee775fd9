"""Plans: a flow compiled into levels, explained, checked and pickled."""
