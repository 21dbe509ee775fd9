"""The carriers of a life's staged sinks: a process for each, and who watches over them."""
