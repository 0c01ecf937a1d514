//! Bounds of the network interfaces that a user names.

/// Longest name of a network interface, in bytes (IFNAMSIZ without its end, netdevice(7)).
pub const INTERFACE_NAME_BYTES_MAX: usize = 15;

/// Most network interfaces of a run: the largest instances have 32.
pub const INTERFACES_MAX: usize = 64;
