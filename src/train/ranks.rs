//! Which host of how many this is, or which process: from what is given, or from the variables
//! that a launcher sets.
//!
//! The first of these that is there decides:
//!
//! 1. `--shard I/N`.
//! 2. `INRUSH_HOST_RANK` and `INRUSH_HOST_COUNT`, for launchers that set nothing of their own.
//! 3. `hostConfig` of `init-config.json`; then `resourceconfig.json` of SageMaker, where the rank
//!    is the place of `current_host` in `hosts`. With more than nine hosts these two differ, for
//!    `algo-10` stands before `algo-2` in that list.
//! 4. The launcher. Of hosts: torchrun, its options as variables (Kubeflow), Open MPI, Slurm, PMI
//!    (MPICH, Intel MPI). Of processes: torchrun, Open MPI, PMI, Slurm: `mpirun` in a Slurm job
//!    leaves each process the rank that Slurm gave to the daemon of its host.
//! 5. `JOB_COMPLETION_INDEX` of an indexed Job of Kubernetes, which sets no number of pods: that
//!    is `INRUSH_HOST_COUNT`.
//! 6. A description that asks for one instance.
//!
//! A rank without a number of hosts, or one that is not below it, is an error: with a guess some
//! objects would go to two hosts and others to none. So is a launcher that has another number of
//! hosts than `resourceconfig.json`: the file may be of another job. So are several processes where
//! the rank of the host is wanted: all of them would fill the same folder. PMIx sets a rank
//! (`PMIX_RANK`) and no size, so it is not read; Open MPI sets its own variables besides.

use std::fmt;

use super::{Hosts, files};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::JOB_HOSTS_MAX;
use crate::plan::epoch::Shard;
use crate::text::shown::shortened;

/// What has a rank.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// One run for each host, which starts or serves all processes there.
    Host,
    /// One run for each process of the job.
    Process,
}

/// What is known besides the variables.
#[derive(Debug, Clone, Copy, Default)]
pub struct Given<'a> {
    /// `--shard`.
    pub shard: Option<Shard>,
    /// Of `init-config.json`.
    pub host_config: Option<&'a Hosts>,
    /// The name and the text of a `resourceconfig.json` that somebody else wrote, SageMaker as a
    /// rule; one that an earlier run wrote says nothing.
    pub resource_config: Option<(&'a str, &'a str)>,
    /// How many instances the description asks for, where it says so.
    pub instances: Option<u32>,
}

/// A rank, and who says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rank {
    /// Which of how many, and their names. Of [`Unit::Process`] these are processes.
    pub hosts: Hosts,
    /// Which unit this is.
    pub unit: Unit,
    /// Where it comes from: `SLURM_NODEID and SLURM_NNODES`.
    pub source: String,
}

impl fmt::Display for Rank {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = match self.unit {
            Unit::Host => "host",
            Unit::Process => "process",
        };
        let Hosts { rank, count, .. } = self.hosts;
        let number = u64::from(rank) + 1;
        write!(f, "{unit} {number} of {count} (shard {rank}/{count}), by {}", self.source)
    }
}

/// The variables of a launcher.
struct Launcher {
    rank: &'static str,
    /// The first that is set counts.
    sizes: &'static [&'static str],
    /// Says how many processes there are.
    processes: Processes,
}

/// How a launcher says how many processes run on a host.
enum Processes {
    Unknown,
    /// A variable with the number on this host.
    Here(&'static str),
    /// A variable with the number on all hosts.
    Everywhere(&'static str),
}

const OWN: Launcher =
    Launcher { rank: "INRUSH_HOST_RANK", sizes: &[HOST_COUNT], processes: Processes::Unknown };
const HOST_COUNT: &str = "INRUSH_HOST_COUNT";

/// The error if this host's rank is unknown.
pub(super) const UNKNOWN: &str = "nothing says which host this is";

/// Advice: how to say which host this is, given their number.
pub(super) fn how_to_say(hosts: &str) -> String {
    let launchers: Vec<&str> = OF_HOSTS.iter().map(|launcher| launcher.rank).collect();
    format!(
        "give --shard I/{hosts} with I from 0, or set {} and {HOST_COUNT}; the variables of \
         launchers are read too ({} and {HOST_COUNT}, {})",
        OWN.rank,
        KUBERNETES.rank,
        launchers.join(", ")
    )
}
/// Indexed Jobs of Kubernetes ("Indexed Job for Parallel Processing with Static Work Assignment").
const KUBERNETES: Launcher =
    Launcher { rank: "JOB_COMPLETION_INDEX", sizes: &[HOST_COUNT], processes: Processes::Unknown };

/// Launchers that say which host this is.
const OF_HOSTS: [Launcher; 5] = [
    // torchrun (torch.distributed.elastic): of processes that it starts.
    Launcher {
        rank: "GROUP_RANK",
        sizes: &["GROUP_WORLD_SIZE"],
        processes: Processes::Here("LOCAL_WORLD_SIZE"),
    },
    // Its options --node-rank and --nnodes as variables: in front of it.
    Launcher { rank: "PET_NODE_RANK", sizes: &["PET_NNODES"], processes: Processes::Unknown },
    // mpirun(1) of Open MPI. It has no rank of the host.
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        sizes: &["OMPI_COMM_WORLD_SIZE"],
        processes: Processes::Here("OMPI_COMM_WORLD_LOCAL_SIZE"),
    },
    // srun(1), "OUTPUT ENVIRONMENT VARIABLES": a step may have fewer nodes than the job.
    Launcher {
        rank: "SLURM_NODEID",
        sizes: &["SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"],
        processes: Processes::Everywhere("SLURM_STEP_NUM_TASKS"),
    },
    // Hydra of MPICH and Intel MPI.
    Launcher {
        rank: "PMI_RANK",
        sizes: &["PMI_SIZE"],
        processes: Processes::Here("MPI_LOCALNRANKS"),
    },
];

/// Launchers that say which process this is.
const OF_PROCESSES: [Launcher; 4] = [
    Launcher { rank: "RANK", sizes: &["WORLD_SIZE"], processes: Processes::Unknown },
    Launcher {
        rank: "OMPI_COMM_WORLD_RANK",
        sizes: &["OMPI_COMM_WORLD_SIZE"],
        processes: Processes::Unknown,
    },
    Launcher { rank: "PMI_RANK", sizes: &["PMI_SIZE"], processes: Processes::Unknown },
    Launcher {
        rank: "SLURM_PROCID",
        sizes: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        processes: Processes::Unknown,
    },
];

/// Finds the rank; `None` where nothing says it.
///
/// # Errors
/// When what decides is not whole, contradicts itself or is not what the description asks for. The
/// error names the variables.
pub fn find(
    unit: Unit,
    given: &Given<'_>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Rank>> {
    let found = decide(unit, given, variable)?;
    let Some(instances) = given.instances.filter(|_| unit == Unit::Host) else { return Ok(found) };
    let asked = format!("the description asks for {instances} instances (InstanceCount)");
    let says = match &found {
        Some(Rank { hosts, .. }) if hosts.count == instances => return Ok(found),
        None if instances == 1 => return Ok(found),
        Some(Rank { hosts, source, .. }) => {
            format!("{source} says {}", in_words(hosts.count))
        }
        None => UNKNOWN.to_owned(),
    };
    let how = how_to_say(&instances.to_string());
    Err(Error::new(ErrorKind::Usage, format!("{asked}, but {says}"))
        .advise(format!("{how}; or change InstanceCount")))
}

/// A number of hosts in words.
fn in_words(hosts: u32) -> String {
    format!("{hosts} {}", if hosts == 1 { "host" } else { "hosts" })
}

/// What decides, whatever the description asks for.
fn decide(
    unit: Unit,
    given: &Given<'_>,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Option<Rank>> {
    // An empty variable is how scripts take one away.
    let variable = |name: &str| variable(name).filter(|value| !value.is_empty());
    let described = described(given);
    let rank = |source: &str, rank: u32, count: u32| {
        let hosts = match &described {
            Ok(Some((hosts, _))) if hosts.count == count => Hosts { rank, ..hosts.clone() },
            _ => Hosts::numbered(rank, count),
        };
        Ok(Some(Rank { hosts, unit, source: source.to_owned() }))
    };
    if let Some(shard) = given.shard {
        check("--shard", "--shard", shard.index, shard.count)?;
        return rank("--shard", shard.index, shard.count);
    }
    let is_kubernetes = variable(OWN.rank).is_none() && variable(KUBERNETES.rank).is_some();
    let own = if is_kubernetes { None } else { OWN.find(&variable)? };
    if let Some((source, index, count)) = own {
        return rank(&source, index, count);
    }
    let launchers: &[Launcher] = match unit {
        Unit::Host => &OF_HOSTS,
        Unit::Process => &OF_PROCESSES,
    };
    let launchers = launchers.iter().chain(is_kubernetes.then_some(&KUBERNETES));
    let mut launched = launchers.map(|launcher| launcher.find(&variable));
    let launched = launched.find_map(Result::transpose);
    if let Some((hosts, source)) = described.clone()?.filter(|_| unit == Unit::Host) {
        if given.host_config.is_none()
            && let Some(Ok((launcher, _, count))) = &launched
            && *count != hosts.count
        {
            let listed = in_words(hosts.count);
            let what = format!("{source} says {listed}, but {launcher} says {count}");
            return Err(Error::new(ErrorKind::Usage, what)
                .advise("remove the file if it is of another job, or give --shard I/N"));
        }
        return Ok(Some(Rank { hosts, unit, source: source.to_owned() }));
    }
    if let Some((source, index, count)) = launched.transpose()? {
        return rank(&source, index, count);
    }
    match (given.instances, unit) {
        (Some(1), Unit::Host) => rank("the number of instances in the description", 0, 1),
        _ => Ok(None),
    }
}

/// What SageMaker's own files say, and which of them.
fn described<'a>(given: &Given<'a>) -> Result<Option<(Hosts, &'a str)>> {
    const HOST_CONFIG: &str = "hostConfig";
    let listed = given.resource_config.map(|(name, text)| {
        let hosts = files::hosts_of_resource_config(text);
        hosts.map(|hosts| (hosts, name)).map_err(|what| {
            Error::new(ErrorKind::Usage, format!("{name}: {what}"))
                .advise("remove the file, or give --shard I/N")
        })
    });
    Ok(match (given.host_config, listed.transpose()?) {
        (Some(hosts), Some((listed, name))) if hosts.count != listed.count => {
            let (count, listed) = (in_words(hosts.count), listed.count);
            let what = format!("hostConfig says {count}, but {name} says {listed}");
            return Err(Error::new(ErrorKind::Usage, what).advise("give --shard I/N"));
        }
        // The names are those of the list.
        (Some(hosts), Some((listed, _))) => {
            Some((Hosts { rank: hosts.rank, ..listed }, HOST_CONFIG))
        }
        (Some(hosts), None) => Some((hosts.clone(), HOST_CONFIG)),
        (None, listed) => listed,
    })
}

impl Launcher {
    /// Where it comes from, the rank and the size; `None` where no variable of it is set.
    fn find(
        &self,
        variable: &impl Fn(&str) -> Option<String>,
    ) -> Result<Option<(String, u32, u32)>> {
        let number = |name: &'static str| -> Result<Option<u32>> {
            let Some(text) = variable(name) else { return Ok(None) };
            let parsed = text.trim().parse().ok();
            let what = || format!("{name} is '{}', which is no number", shortened(&text));
            parsed.map(Some).ok_or_else(|| usage(what()))
        };
        let size_name = self.sizes.iter().find(|name| variable(name).is_some());
        let size = size_name.map(|name| number(name)).transpose()?.flatten();
        let (rank, size, size_name) = match (number(self.rank)?, size.zip(size_name)) {
            (None, None) => return Ok(None),
            (Some(rank), Some((size, name))) => (rank, size, *name),
            // The only one there is.
            (None, Some((1, name))) => (0, 1, *name),
            (None, Some((size, name))) => {
                let what = format!("{name} is {size}, but {} is not set", self.rank);
                return Err(usage(what));
            }
            (Some(rank), None) => {
                let what = format!("{} is {rank}, but {} is not set", self.rank, self.sizes[0]);
                return Err(usage(what));
            }
        };
        check(self.rank, size_name, rank, size)?;
        let several = match self.processes {
            Processes::Unknown => None,
            Processes::Here(name) => number(name)?.filter(|count| *count > 1).zip(Some(name)),
            Processes::Everywhere(name) => {
                number(name)?.filter(|count| *count > size).zip(Some(name))
            }
        };
        if let Some((count, name)) = several {
            let what = format!("several processes run on one host ({name} is {count})");
            return Err(Error::new(ErrorKind::Usage, what)
                .advise("start one for each host, which starts the processes"));
        }
        Ok(Some((format!("{} and {size_name}", self.rank), rank, size)))
    }
}

fn check(rank_name: &str, size_name: &str, rank: u32, size: u32) -> Result<()> {
    if size > JOB_HOSTS_MAX {
        return Err(usage(format!("{size_name} says {size}, at most {JOB_HOSTS_MAX} are allowed")));
    }
    if rank >= size {
        let what = format!("{rank_name} is {rank}, but {size_name} is {size}: ranks begin with 0");
        return Err(usage(what));
    }
    Ok(())
}

fn usage(what: String) -> Error {
    Error::new(ErrorKind::Usage, what).advise("give --shard I/N")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(unit: Unit, given: &Given<'_>, set: &[(&str, &str)]) -> Result<Option<Rank>> {
        find(unit, given, |name| {
            set.iter().find(|(other, _)| *other == name).map(|(_, value)| (*value).to_owned())
        })
    }

    fn described(unit: Unit, set: &[(&str, &str)]) -> String {
        match found(unit, &Given::default(), set) {
            Ok(None) => "nothing".to_owned(),
            Ok(Some(rank)) => rank.to_string(),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Usage);
                error.to_string()
            }
        }
    }

    #[test]
    fn each_launcher_says_which_host_this_is() {
        let check = |set: &[(&str, &str)], expected: &str| {
            assert_eq!(described(Unit::Host, set), expected, "{set:?}");
        };
        check(&[], "nothing");
        check(
            &[("SLURM_NODEID", "0"), ("SLURM_NNODES", "4")],
            "host 1 of 4 (shard 0/4), by SLURM_NODEID and SLURM_NNODES",
        );
        check(
            &[("SLURM_NODEID", "1"), ("SLURM_NNODES", "4"), ("SLURM_STEP_NUM_NODES", "2")],
            "host 2 of 2 (shard 1/2), by SLURM_NODEID and SLURM_STEP_NUM_NODES",
        );
        check(
            &[("GROUP_RANK", "1"), ("GROUP_WORLD_SIZE", "2"), ("LOCAL_WORLD_SIZE", "1")],
            "host 2 of 2 (shard 1/2), by GROUP_RANK and GROUP_WORLD_SIZE",
        );
        check(
            &[("PET_NODE_RANK", "2"), ("PET_NNODES", "3"), ("JOB_COMPLETION_INDEX", "2")],
            "host 3 of 3 (shard 2/3), by PET_NODE_RANK and PET_NNODES",
        );
        check(
            &[("OMPI_COMM_WORLD_RANK", "1"), ("OMPI_COMM_WORLD_SIZE", "2")],
            "host 2 of 2 (shard 1/2), by OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE",
        );
        check(
            &[("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALNRANKS", "1")],
            "host 2 of 2 (shard 1/2), by PMI_RANK and PMI_SIZE",
        );
        check(
            &[("JOB_COMPLETION_INDEX", "3"), ("INRUSH_HOST_COUNT", "4")],
            "host 4 of 4 (shard 3/4), by JOB_COMPLETION_INDEX and INRUSH_HOST_COUNT",
        );
        // Ranks of processes say nothing about hosts; a salloc(1) of one node has no SLURM_NODEID.
        check(&[("RANK", "1"), ("WORLD_SIZE", "2")], "nothing");
        check(
            &[("SLURM_NNODES", "1"), ("PMI_RANK", "")],
            "host 1 of 1 (shard 0/1), by SLURM_NODEID and SLURM_NNODES",
        );
    }

    #[test]
    fn each_launcher_says_which_process_this_is() {
        let check = |set: &[(&str, &str)], expected: &str| {
            assert_eq!(described(Unit::Process, set), expected, "{set:?}");
        };
        check(
            &[("RANK", "9"), ("WORLD_SIZE", "16"), ("GROUP_RANK", "1"), ("GROUP_WORLD_SIZE", "2")],
            "process 10 of 16 (shard 9/16), by RANK and WORLD_SIZE",
        );
        check(
            &[("SLURM_PROCID", "3"), ("SLURM_NTASKS", "8"), ("SLURM_NODEID", "0")],
            "process 4 of 8 (shard 3/8), by SLURM_PROCID and SLURM_NTASKS",
        );
        // mpirun in a Slurm job: Slurm's rank is that of the daemon.
        let slurm = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "2")];
        for rank in [["OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"], ["PMI_RANK", "PMI_SIZE"]] {
            let set = [&[(rank[0], "5"), (rank[1], "16")], &slurm[..]].concat();
            let expected = format!("process 6 of 16 (shard 5/16), by {} and {}", rank[0], rank[1]);
            check(&set, &expected);
        }
    }

    #[test]
    fn what_is_not_whole_is_an_error() {
        let check = |set: &[(&str, &str)], expected: &str| {
            assert_eq!(described(Unit::Host, set), expected, "{set:?}");
        };
        let advice = "give --shard I/N";
        check(
            &[("SLURM_NNODES", "4")],
            &format!("SLURM_NNODES is 4, but SLURM_NODEID is not set; {advice}"),
        );
        check(
            &[("GROUP_RANK", "1"), ("SLURM_NODEID", "0"), ("SLURM_NNODES", "4")],
            &format!("GROUP_RANK is 1, but GROUP_WORLD_SIZE is not set; {advice}"),
        );
        check(
            &[("SLURM_NODEID", "4"), ("SLURM_NNODES", "4")],
            &format!("SLURM_NODEID is 4, but SLURM_NNODES is 4: ranks begin with 0; {advice}"),
        );
        check(
            &[("PET_NODE_RANK", "0"), ("PET_NNODES", "1:4")],
            &format!("PET_NNODES is '1:4', which is no number; {advice}"),
        );
        check(
            &[("JOB_COMPLETION_INDEX", "0")],
            &format!("JOB_COMPLETION_INDEX is 0, but INRUSH_HOST_COUNT is not set; {advice}"),
        );
        check(
            &[("INRUSH_HOST_COUNT", "2")],
            &format!("INRUSH_HOST_COUNT is 2, but INRUSH_HOST_RANK is not set; {advice}"),
        );
        check(
            &[("PMI_RANK", "0"), ("PMI_SIZE", "65537")],
            &format!("PMI_SIZE says 65537, at most 65536 are allowed; {advice}"),
        );
        let several = "several processes run on one host";
        let remedy = "start one for each host, which starts the processes";
        check(
            &[("GROUP_RANK", "0"), ("GROUP_WORLD_SIZE", "1"), ("LOCAL_WORLD_SIZE", "8")],
            &format!("{several} (LOCAL_WORLD_SIZE is 8); {remedy}"),
        );
        check(
            &[("SLURM_NODEID", "0"), ("SLURM_NNODES", "2"), ("SLURM_STEP_NUM_TASKS", "16")],
            &format!("{several} (SLURM_STEP_NUM_TASKS is 16); {remedy}"),
        );
    }

    #[test]
    fn what_is_given_comes_before_the_launcher() {
        let slurm = [("SLURM_NODEID", "0"), ("SLURM_NNODES", "4")];
        let own = [&[("INRUSH_HOST_RANK", "2"), ("INRUSH_HOST_COUNT", "3")], &slurm[..]].concat();
        let hosts = Hosts::numbered(10, 12);
        let listed = files::resource_config(&hosts, &[], "eth0");
        let shard = Some(Shard { index: 1, count: 12 });
        let rank_of = |given: &Given<'_>, set: &[(&str, &str)]| {
            found(Unit::Host, given, set).expect("a rank").expect("a rank")
        };
        let named = Some(("resourceconfig.json", &*listed));
        let by_list = Given { resource_config: named, ..Given::default() };
        let both = Given { host_config: Some(&hosts), ..by_list };
        let rank = rank_of(&Given { shard, ..both }, &own);
        assert_eq!(rank.to_string(), "host 2 of 12 (shard 1/12), by --shard");
        assert_eq!(rank.hosts.current, "algo-11", "the names are those of the list");
        let rank = rank_of(&both, &own);
        let by_own = "host 3 of 3 (shard 2/3), by INRUSH_HOST_RANK and INRUSH_HOST_COUNT";
        assert_eq!(rank.to_string(), by_own);
        let rank = rank_of(&both, &slurm);
        assert_eq!(rank.to_string(), "host 11 of 12 (shard 10/12), by hostConfig");
        assert_eq!(
            (rank.hosts.current, rank.hosts.names),
            (hosts.current.clone(), hosts.names.clone())
        );
        // algo-1, algo-10, algo-11: the list has another order.
        let alike = [("SLURM_NODEID", "0"), ("SLURM_NNODES", "12")];
        for set in [&alike[..], &[], &[("SLURM_NNODES", "12")]] {
            let rank = rank_of(&by_list, set);
            assert_eq!(rank.to_string(), "host 3 of 12 (shard 2/12), by resourceconfig.json");
        }
        let alone = Given { instances: Some(1), ..Given::default() };
        let by_count = "host 1 of 1 (shard 0/1), by the number of instances in the description";
        assert_eq!(rank_of(&alone, &[]).to_string(), by_count);
        let four = Given { instances: Some(4), ..Given::default() };
        assert_eq!(rank_of(&four, &slurm).hosts.count, 4);
        assert_eq!(found(Unit::Process, &four, &[]), Ok(None), "processes are no instances");
    }

    #[test]
    fn every_instance_is_a_host() {
        let given = Given { instances: Some(2), ..Given::default() };
        let refused = |given: &Given<'_>, set: &[(&str, &str)], expected: &str| {
            let error = found(Unit::Host, given, set).expect_err("another number of hosts");
            let count = given.instances.expect("a number");
            let begin = format!("the description asks for {count} instances (InstanceCount), but ");
            let message = error.to_string();
            assert!(
                message.starts_with(&format!("{begin}{expected}; give --shard I/{count}")),
                "{message}"
            );
            let names = ["INRUSH_HOST_RANK and INRUSH_HOST_COUNT", "SLURM_NODEID", "PMI_RANK"];
            assert!(names.iter().all(|name| message.contains(name)), "{message}");
        };
        refused(&given, &[], "nothing says which host this is");
        let slurm = [("SLURM_NODEID", "0"), ("SLURM_NNODES", "4")];
        refused(&given, &slurm, "SLURM_NODEID and SLURM_NNODES says 4 hosts");
        let shard = |index, count| Given { shard: Some(Shard { index, count }), ..given };
        refused(&shard(0, 1), &[], "--shard says 1 host");
        let more = Given { instances: Some(3), ..shard(1, 2) };
        refused(&more, &[], "--shard says 2 hosts");
        let rank = found(Unit::Host, &shard(1, 2), &slurm).expect("a rank").expect("a rank");
        assert_eq!((&*rank.hosts.current, rank.hosts.names.len()), ("algo-2", 2));
    }

    #[test]
    fn what_contradicts_itself_is_an_error() {
        let two = Hosts::numbered(0, 2);
        let listed = files::resource_config(&Hosts::numbered(0, 3), &[], "eth0");
        let by_list =
            Given { resource_config: Some(("resourceconfig.json", &listed)), ..Given::default() };
        let given = Given { host_config: Some(&two), ..by_list };
        let refused = |given: &Given<'_>, set: &[(&str, &str)]| {
            found(Unit::Host, given, set).expect_err("a contradiction").to_string()
        };
        let expected = "hostConfig says 2 hosts, but resourceconfig.json says 3; give --shard I/N";
        assert_eq!(refused(&given, &[]), expected);
        // The file may be of another job, and then other hosts have the objects.
        let slurm = [("SLURM_NODEID", "0"), ("SLURM_NNODES", "2")];
        let expected = "resourceconfig.json says 3 hosts, but SLURM_NODEID and SLURM_NNODES says \
                        2; remove the file if it is of another job, or give --shard I/N";
        assert_eq!(refused(&by_list, &slurm), expected);
        let broken = Given { resource_config: Some(("r.json", "{}")), ..Given::default() };
        let expected = "r.json: current_host is no string; remove the file, or give --shard I/N";
        assert_eq!(refused(&broken, &slurm), expected);
        // What comes before it does not need it.
        for given in [by_list, broken] {
            let given = Given { shard: Some(Shard { index: 0, count: 2 }), ..given };
            let rank = found(Unit::Host, &given, &slurm).expect("a rank").expect("a rank");
            assert_eq!(rank.to_string(), "host 1 of 2 (shard 0/2), by --shard");
        }
        let given = Given { shard: Some(Shard { index: 3, count: 3 }), ..Given::default() };
        assert!(found(Unit::Host, &given, &[]).is_err());
    }
}
