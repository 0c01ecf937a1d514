"""What people install: the static program, the Debian package, the container image, and what
restricts or starts them. `make.py` makes them; `tools/check.py package` and `kernels` try them."""
