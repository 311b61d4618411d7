"""`flotilla up`: a complete system on one machine, as supervised child processes.

Decisions are pure functions: `plan` (processes and their arguments), `supervision` (restarts, as a state machine) and
`shutdown` (the order of signals). `supervisor` runs the event loop; `launch`, `folder`, `ports`, `logs` and `probe`
access the system for it. `child` runs in each child process before the server.

It supervises processes of one machine. For several machines, use Kubernetes.
"""
