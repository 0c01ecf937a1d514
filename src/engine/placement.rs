//! Places the workers of a run on cores, and assigns network interfaces. Pure.
//!
//! The data that a packet passes through (the interface's queues, the socket, the slot) should be
//! on one NUMA node: so a worker runs on the node of its interface if possible, and its slots are
//! allocated there, because a page is allocated on the node of the thread that first touches it
//! (numa(7)).

use std::sync::Arc;

use crate::sys::topology::{Interface, Node, in_words};

/// The resources of this machine.
#[derive(Debug, Clone, Copy)]
pub struct Ground<'a> {
    /// The cores that this process may use.
    pub cores: &'a [u32],
    /// The NUMA nodes and their cores; empty if unknown.
    pub nodes: &'a [Node],
    /// The interfaces named by the user; without one the kernel's routes decide.
    pub interfaces: &'a [Interface],
}

/// The place of one worker.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct WorkerPlace {
    /// The cores that it may run on; empty: all that this process may use.
    pub cores: Vec<u32>,
    /// Indexes of its interfaces, used in turn by its connections. Empty: any.
    pub interfaces: Vec<usize>,
}

impl Ground<'_> {
    /// The places of this many workers, by number.
    ///
    /// With as many workers as cores each gets one; with fewer the kernel places them, because
    /// several runs on a host would otherwise share its first cores. Interfaces get even shares of
    /// the workers, on cores of their own node first. With fewer workers than interfaces, each
    /// worker has several.
    #[must_use]
    pub fn places(&self, workers: usize) -> Vec<WorkerPlace> {
        if workers == self.cores.len() {
            return self.one_for_each_core();
        }
        let mut places: Vec<WorkerPlace> =
            (0..workers).map(|number| self.anywhere(number, workers)).collect();
        self.keep_near(&mut places);
        places
    }

    /// A worker that the kernel places.
    fn anywhere(&self, number: usize, workers: usize) -> WorkerPlace {
        let count = self.interfaces.len();
        let interfaces = match count {
            0 => Vec::new(),
            _ if workers >= count => vec![number % count],
            _ => (number..count).step_by(workers).collect(),
        };
        WorkerPlace { cores: Vec::new(), interfaces }
    }

    /// Pins workers to the node of their interface, as many as it has cores.
    fn keep_near(&self, places: &mut [WorkerPlace]) {
        if self.nodes.len() < 2 {
            return;
        }
        let mut taken = vec![0; self.nodes.len()];
        for place in places {
            let [interface] = place.interfaces[..] else { continue };
            let Some(at) = self.node_of(interface) else { continue };
            let near = self.near(at);
            if taken[at] < near.len() {
                taken[at] += 1;
                place.cores = near;
            }
        }
    }

    fn one_for_each_core(&self) -> Vec<WorkerPlace> {
        let alone = |core: &u32| WorkerPlace { cores: vec![*core], interfaces: Vec::new() };
        let mut places: Vec<WorkerPlace> = self.cores.iter().map(alone).collect();
        let (count, workers) = (self.interfaces.len(), places.len());
        if count > workers {
            for (number, place) in places.iter_mut().enumerate() {
                place.interfaces = self.anywhere(number, workers).interfaces;
            }
            return places;
        }
        let mut left: Vec<usize> =
            (0..count).map(|at| workers / count + usize::from(at < workers % count)).collect();
        // On the node of the interface first, then on any core.
        for is_near in [true, false] {
            let mut goes_on = true;
            while goes_on {
                goes_on = false;
                for (interface, left) in left.iter_mut().enumerate().filter(|(_, left)| **left > 0)
                {
                    let near = self.node_of(interface).map(|at| self.near(at)).unwrap_or_default();
                    let fits = |place: &&mut WorkerPlace| {
                        let is_free = place.interfaces.is_empty();
                        is_free && (!is_near || near.contains(&place.cores[0]))
                    };
                    if let Some(place) = places.iter_mut().find(fits) {
                        place.interfaces.push(interface);
                        *left -= 1;
                        goes_on = true;
                    }
                }
            }
        }
        places
    }

    /// Index of an interface's node in the table of nodes.
    fn node_of(&self, interface: usize) -> Option<usize> {
        let number = self.interfaces[interface].node?;
        self.nodes.iter().position(|(node, _)| *node == number)
    }

    /// The cores of a node that this process may use.
    fn near(&self, at: usize) -> Vec<u32> {
        let (_, all) = &self.nodes[at];
        self.cores.iter().copied().filter(|core| all.contains(core)).collect()
    }

    /// The result for each interface, one line each.
    #[must_use]
    pub fn in_words(&self, places: &[WorkerPlace]) -> Vec<String> {
        let line = |(number, interface): (usize, &Interface)| {
            let mine = || places.iter().filter(|place| place.interfaces.contains(&number));
            let mut cores: Vec<u32> = mine().flat_map(|place| place.cores.clone()).collect();
            cores.sort_unstable();
            cores.dedup();
            let node = match interface.node {
                Some(node) => format!("NUMA node {node}"),
                None => "no NUMA node".to_owned(),
            };
            let on = match &cores[..] {
                [] => "any core".to_owned(),
                [core] => format!("core {core}"),
                cores => format!("cores {}", in_words(cores)),
            };
            let count = mine().count();
            let workers = if count == 1 { "worker" } else { "workers" };
            format!("interface {} ({node}): {count} {workers} on {on}", interface.name)
        };
        self.interfaces.iter().enumerate().map(line).collect()
    }
}

/// The names of a worker's interfaces.
#[must_use]
pub fn names(place: &WorkerPlace, interfaces: &[Interface]) -> Vec<Arc<str>> {
    place.interfaces.iter().map(|number| Arc::clone(&interfaces[*number].name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn interfaces(nodes: &[Option<u32>]) -> Vec<Interface> {
        let named = |(number, node): (usize, &Option<u32>)| Interface {
            name: format!("eth{number}").into(),
            node: *node,
        };
        nodes.iter().enumerate().map(named).collect()
    }

    /// `count` nodes of `each` cores in a row.
    fn nodes(count: u32, each: u32) -> Vec<Node> {
        (0..count).map(|node| (node, (node * each..(node + 1) * each).collect())).collect()
    }

    /// Places, with checks that always hold: every worker is placed, no core has two if each worker
    /// has its own, each interface has its even share, and no worker is without one.
    fn places(
        cores: &[u32],
        nodes: &[Node],
        on: &[Option<u32>],
        workers: usize,
    ) -> Vec<WorkerPlace> {
        let interfaces = interfaces(on);
        let ground = Ground { cores, nodes, interfaces: &interfaces };
        let places = ground.places(workers);
        assert_eq!(places.len(), workers);
        if workers == cores.len() {
            let taken: Vec<u32> = places.iter().flat_map(|place| place.cores.clone()).collect();
            assert_eq!(taken, cores, "one for each core, in their order");
        }
        assert!(places.iter().flat_map(|place| &place.cores).all(|core| cores.contains(core)));
        assert!(on.is_empty() || places.iter().all(|place| !place.interfaces.is_empty()));
        let shares: Vec<usize> = (0..on.len())
            .map(|number| places.iter().filter(|place| place.interfaces.contains(&number)).count())
            .collect();
        let (least, most) = (shares.iter().min(), shares.iter().max());
        assert!(least.zip(most).is_none_or(|(least, most)| *least > 0 && most - least <= 1));
        places
    }

    /// How many workers are on the node of their interface.
    fn near(places: &[WorkerPlace], nodes: &[Node], on: &[Option<u32>]) -> usize {
        let is_near = |place: &&WorkerPlace| {
            let node = on[place.interfaces[0]];
            let own = nodes.iter().find(|(number, _)| Some(*number) == node);
            let own = own.map(|(_, cores)| cores.as_slice()).unwrap_or_default();
            !place.cores.is_empty() && place.cores.iter().all(|core| own.contains(core))
        };
        places.iter().filter(is_near).count()
    }

    #[test]
    fn without_interfaces_only_a_run_on_all_cores_is_pinned() {
        let all = places(&[0, 1, 2, 3], &nodes(2, 2), &[], 4);
        assert!(all.iter().all(|place| place.cores.len() == 1 && place.interfaces.is_empty()));
        for workers in [1, 3, 5] {
            let some = places(&[0, 1, 2, 3], &nodes(2, 2), &[], workers);
            assert!(some.iter().all(|place| *place == WorkerPlace::default()), "{some:?}");
        }
    }

    #[test]
    fn on_one_node_interfaces_have_even_shares() {
        let cores: Vec<u32> = (0..8).collect();
        for nodes in [nodes(1, 8), Vec::new()] {
            for on in [&[Some(0)][..], &[Some(0), Some(0)], &[None, Some(0), None]] {
                places(&cores, &nodes, on, 8);
                let few = places(&cores, &nodes, on, 3);
                assert!(few.iter().all(|place| place.cores.is_empty()), "the kernel places them");
            }
        }
    }

    #[test]
    fn workers_are_on_the_node_of_their_interface_first() {
        let (cores, two): (Vec<u32>, _) = ((0..16).collect(), nodes(2, 8));
        // Each has a node of its own.
        let on = [Some(1), Some(0)];
        assert_eq!(near(&places(&cores, &two, &on, 16), &two, &on), 16);
        assert_eq!(near(&places(&cores, &two, &on, 6), &two, &on), 6);
        // Both are on one node: they share its cores, and the other ones.
        let on = [Some(1), Some(1)];
        let both = places(&cores, &two, &on, 16);
        assert_eq!(near(&both, &two, &on), 8);
        let first = both[8..].iter().filter(|place| place.interfaces == [0]).count();
        assert_eq!(first, 4, "half of the near cores: {both:?}");
        // With fewer workers all fit there; with more than it has cores some do not.
        assert_eq!(near(&places(&cores, &two, &on, 7), &two, &on), 7);
        assert_eq!(near(&places(&cores, &two, &on, 12), &two, &on), 8);
        // A single one.
        let on = [Some(1)];
        assert_eq!(near(&places(&cores, &two, &on, 4), &two, &on), 4);
        assert_eq!(near(&places(&cores, &two, &on, 16), &two, &on), 8);
        // More workers than cores.
        assert_eq!(near(&places(&cores, &two, &on, 40), &two, &on), 8);
    }

    #[test]
    fn four_nodes_with_two_interfaces() {
        let (cores, four): (Vec<u32>, _) = ((0..32).collect(), nodes(4, 8));
        let on = [Some(3), Some(1)];
        let all = places(&cores, &four, &on, 32);
        assert_eq!(near(&all, &four, &on), 16, "all cores of both nodes");
        assert!(all[24..].iter().all(|place| place.interfaces == [0]), "node 3");
        assert!(all[8..16].iter().all(|place| place.interfaces == [1]), "node 1");
        // One with an unknown node gets the remaining cores.
        let on = [Some(2), None];
        let all = places(&cores, &four, &on, 32);
        assert_eq!(near(&all, &four, &on), 8);
        assert!(all[16..24].iter().all(|place| place.interfaces == [0]), "node 2");
    }

    #[test]
    fn cores_that_are_offline_or_not_allowed_are_nobodys() {
        // Node 0 has cores 0 to 3, of which 1 and 2 are offline; the cpuset has one of node 1.
        let nodes = vec![(0, vec![0, 3]), (1, vec![4, 5, 6, 7])];
        let on = [Some(0), Some(1)];
        let all = places(&[0, 3, 6], &nodes, &on, 3);
        assert_eq!(near(&all, &nodes, &on), 3, "{all:?}");
        let few = places(&[0, 3, 6], &nodes, &on, 2);
        assert_eq!(few[1].cores, [6]);
        // A cpuset without any core of the interface's node.
        let far = places(&[4, 5], &nodes, &[Some(0)], 2);
        assert_eq!(near(&far, &nodes, &[Some(0)]), 0);
        // A node that the machine does not have.
        places(&[4, 5], &nodes, &[Some(9)], 2);
        places(&[4, 5], &nodes, &[Some(9)], 1);
    }

    #[test]
    fn fewer_workers_than_interfaces_have_several_each() {
        let (cores, two): (Vec<u32>, _) = ((0..4).collect(), nodes(2, 2));
        let on = [Some(0), Some(1), None, Some(0), Some(1)];
        assert_eq!(places(&cores, &two, &on, 1)[0].interfaces, [0, 1, 2, 3, 4]);
        assert_eq!(places(&cores, &two, &on, 2)[1].interfaces, [1, 3]);
        assert_eq!(places(&cores, &two, &on, 4)[0].interfaces, [0, 4]);
        let interfaces = interfaces(&on);
        let names = names(&places(&cores, &two, &on, 2)[1], &interfaces);
        assert_eq!(names.iter().map(|name| &**name).collect::<Vec<_>>(), ["eth1", "eth3"]);
    }

    #[test]
    fn a_placement_in_words() {
        let (cores, two): (Vec<u32>, _) = ((0..8).collect(), nodes(2, 4));
        let interfaces = interfaces(&[Some(1), None]);
        let ground = Ground { cores: &cores, nodes: &two, interfaces: &interfaces };
        let words = [
            "interface eth0 (NUMA node 1): 4 workers on cores 4-7",
            "interface eth1 (no NUMA node): 4 workers on cores 0-3",
        ];
        assert_eq!(ground.in_words(&ground.places(8)), words);
        let words = [
            "interface eth0 (NUMA node 1): 1 worker on cores 4-7",
            "interface eth1 (no NUMA node): 1 worker on any core",
        ];
        assert_eq!(ground.in_words(&ground.places(2)), words);
    }
}
