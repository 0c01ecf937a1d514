//! Facts about the machine for a job's variables.

use std::path::Path;

use crate::train::variables::Machine;

/// The kernel's table of IPv4 routes (proc_net(5)).
const ROUTES: &str = "/proc/net/route";
/// A folder with an entry per GPU, created by NVIDIA's driver.
const NVIDIA_GPUS: &str = "/proc/driver/nvidia/gpus";
/// The interface without a default route: SageMaker's.
const USUAL_INTERFACE: &str = "eth0";
/// The destination of the default route, as in the table.
const EVERYWHERE: &str = "00000000";

/// This machine. Neuron cores are not counted: that requires a program of AWS.
pub(super) fn look() -> Machine {
    let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    let gpus = std::fs::read_dir(Path::new(NVIDIA_GPUS)).map_or(0, Iterator::count);
    let routes = std::fs::read_to_string(ROUTES).unwrap_or_default();
    Machine {
        cpus: count(cpus),
        gpus: count(gpus),
        neurons: 0,
        network_interface: interface(&routes).unwrap_or(USUAL_INTERFACE).to_owned(),
    }
}

/// The interface of the default route.
fn interface(routes: &str) -> Option<&str> {
    routes.lines().skip(1).find_map(|line| {
        let mut fields = line.split_whitespace();
        let (name, destination) = (fields.next()?, fields.next()?);
        (destination == EVERYWHERE).then_some(name)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_interface_is_that_of_the_default_route() {
        let head = "Iface\tDestination\tGateway\tFlags\n";
        let local = "lo0\t0000007F\t00000000\t0001\n";
        let text = format!("{head}{local}ens5\t00000000\t0100000A\t0003\n");
        assert_eq!(interface(&text), Some("ens5"));
        assert_eq!(interface(&format!("{head}{local}")), None);
        assert_eq!(interface(""), None);
    }

    #[test]
    fn there_is_a_processor() {
        let machine = look();
        assert!(machine.cpus > 0 && !machine.network_interface.is_empty(), "{machine:?}");
    }
}
