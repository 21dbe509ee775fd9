"""Jobs of this machine: each has a folder with its state, its lock and its logs, no matter who runs it.

    runner.py       runs a job in this process: `lowtide run`, `python flow.py`, spark-submit
    supervisor.py   runs it as a child of a small process: `lowtide run --detach`
    folder.py       keeps what other programs look at
    job_end.py       ends a job from outside: `lowtide stop`
    figures.py      what a running job says of itself: `lowtide status`

A job's processes die together: the JVM and its Python children with the runner, the runner with its supervisor. Each
life has a mark that all its processes inherit in their environment, so that none can be missed where one must be ended.
"""
