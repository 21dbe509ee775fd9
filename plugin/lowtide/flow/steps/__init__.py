"""Steps: what a flow is made of, as frozen values."""
