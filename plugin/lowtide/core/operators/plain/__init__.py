"""Plain steps: one record in, any number out, no state; and the ways in and out of a level."""
