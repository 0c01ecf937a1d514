"""The lab: servers that this project did not write, and runs that are measured.

Who uses it: `tools/check.py interop` (does every byte arrive?), `tools/check.py everyday` (does it do what
people know from other tools?), `tools/check.py readers` (do programs that train get every record?),
`tools/check.py cluster` (and every host its share?), `tools/check.py completions` (what does TAB
bring?), `tools/bench.py` (how fast, and at what price?), `tools/check.py memory` and `tools/soak.py`
(with how much memory, and after hours, too?). Only the standard library, so there is nothing to
install for Python itself.

The rooms, from the ground up:

* `process`: children that stop by themselves, and runs with a deadline, CPU time and peak RSS.
* `install`: what the lab needs from the distribution and from the package index.
* `dataset`: deterministic bytes, awkward sizes and awkward names.
* `listing`: ListObjectsV2 as static pages.
* `authority`: certificates that are made for one run.
* `nginx`, `moto`: the servers, on loopback only; nginx also over TLS 1.2 and 1.3.
* `origin`: the in-repo server, for what only it can do: objects of any size, and faults.
* `volumes`: filesystems to download to.
* `client`: the command lines of `inrush` and its environment.
* `compare`: a downloaded tree against the one it came from.
* `command_lines`: what people type with other tools, and with `inrush`; `printed`: what they print.
* `shells`: bash, zsh and fish at terminals, for `tools/check.py completions`.
* `measure`: rounds, medians and tables for the benchmark; `startup`: how long a job waits.
* `drift`: whether a figure stays flat over a long run.
* `samples`: training data in the forms that its readers know; `consumers`: such readers, each run
  with the Python of its own environment.
* `slurm`: a cluster of two nodes; `alone`: a network with nothing but loopback.
* `streams`, `pipe_reader`, `paced_reader`, `epoch_reader`: who reads what `inrush` feeds;
  `slow_reader`: readers that are slower than the network; `tcp_memory`: what sockets hold then.
* `stolen`: processor time that the hypervisor gave to other machines during a measurement.

Out of scope: anything that leaves this machine.
"""
