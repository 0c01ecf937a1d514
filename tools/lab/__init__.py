"""The lab: what `tools/check.py` checks and `tools/bench.py` measures, and what both need.

Only the standard library, so there is nothing to install for Python itself. The rooms, from the
ground up:

* `process`: children that stop by themselves, and runs with a deadline, CPU time and peak RSS.
* `install`: what the lab needs from the distribution and from the package index.
* `dataset`, `samples`: deterministic objects, and training data in the forms that its readers know.
* `servers`: nginx, servers that keep objects, the in-repo server, a cluster, certificates, networks
  and file systems.
* `client`: the command lines of `inrush`, its mounts and its environment; `peers`: other programs.
* `compare`: a downloaded tree against the one it came from.
* `streams`: who reads what `inrush` feeds; `consumers`, `loops`: who reads training data, each run
  with the Python of its own environment.
* `measure`: rounds, medians, tables and bounds; `drift`: whether a figure stays flat over a long
  run; `stolen`, `tcp_memory`: what the machine did meanwhile; `chart`: tables and pictures.
* `driver`: the command line, the folder, the servers and the end of everything above it.
* `checks` and `benches`: a module for each, or for some that share their objects.

Out of scope: anything that leaves this machine.
"""
