"""`flotilla up`: the whole system on one machine, as child processes that are watched and started again.

What is decided is decided by pure functions: `plan` (which processes, with which arguments), `backoff` and
`supervision` (what to do when one of them ends or falls silent), `ending` (who is told to end when). `shell` acts upon
it; `launch`, `folder`, `ports`, `logs` and `probe` are its hands. `child` is what runs in each child process before
the server does.

It is for one person's machine. It does not watch over several machines; Kubernetes does.
"""
