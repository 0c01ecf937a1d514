"""Servers, networks and file systems of this machine alone, each as long as it is entered."""
