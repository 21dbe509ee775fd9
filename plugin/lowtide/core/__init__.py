"""The protocol of one worker: fronts, operators, barriers. No sockets, threads, clocks or services."""
