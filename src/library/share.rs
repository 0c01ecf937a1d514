//! The resources of an engine that shares its machine with others, such as the workers of a data
//! loader. Pure: host facts in, configuration out.

use std::num::NonZeroU64;

use super::engine::EngineOptions;
use crate::engine::config::{Config, HostFacts, ResourceOptions};
use crate::error::{Error, ErrorKind, Result};
use crate::limits::{ATTEMPTS_WISHED_MAX, MEMORY_BYTES_MIN};

/// Resolves the engine's configuration and its maximum bytes per second, for requests of this
/// length.
///
/// # Errors
/// [`ErrorKind::Usage`] if an option is out of range, or the share's number is not below its count.
pub(super) fn resolve(
    options: EngineOptions,
    part_size_bytes: Option<u64>,
    facts: HostFacts,
) -> Result<(Config, Option<NonZeroU64>)> {
    let EngineOptions { workers, connections, max_connections, memory_bytes, ring, .. } = options;
    let bandwidth = options.bandwidth_limit_bytes_per_second;
    if let Some(attempts) = options.max_attempts
        && attempts.get() > ATTEMPTS_WISHED_MAX
    {
        let message = format!("{attempts} attempts are more than {ATTEMPTS_WISHED_MAX}");
        return Err(Error::new(ErrorKind::Usage, message).advise("lower max_attempts"));
    }
    let alone = ResourceOptions {
        workers,
        connections,
        max_connections,
        memory_bytes,
        part_size_bytes,
        ring,
    };
    let whole = Config::resolve(alone, facts)?;
    let Some((number, engines)) = options.share else { return Ok((whole, bandwidth)) };
    if number >= engines {
        let message = format!("there is no engine {number} of {engines}");
        return Err(Error::new(ErrorKind::Usage, message)
            .advise("give a number from 0, and how many engines there are"));
    }
    // The first `total % engines` engines take one more each.
    let part = |total: usize| (total / engines + usize::from(number < total % engines)).max(1);
    let parts = engines as u64;
    let connections = connections.map(part);
    let most = if connections.is_some() { None } else { Some(part(whole.connections())) };
    let shared = ResourceOptions {
        workers: Some(part(whole.workers)),
        connections,
        max_connections: most,
        memory_bytes: Some((whole.memory_bytes / parts).max(MEMORY_BYTES_MIN)),
        part_size_bytes,
        ring,
    };
    let bandwidth =
        bandwidth.map(|limit| NonZeroU64::new(limit.get() / parts).unwrap_or(NonZeroU64::MIN));
    Ok((Config::resolve(shared, facts)?, bandwidth))
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use super::*;

    const FACTS: HostFacts =
        HostFacts { processors: 8, memory_bytes: 64 << 30, descriptors: 1 << 20 };

    fn parts(options: EngineOptions, engines: usize) -> Vec<Config> {
        let of = |number| resolve(options.share(number, engines), None, FACTS).expect("it fits").0;
        (0..engines).map(of).collect()
    }

    #[test]
    fn invalid_options_are_refused_before_the_engine_starts() {
        let options = EngineOptions::new();
        assert_eq!(options.check(), Ok(()));
        let attempts = NonZeroU32::new(ATTEMPTS_WISHED_MAX + 1);
        for (options, advice) in [
            (EngineOptions { memory_bytes: Some(1), ..options }, "give at least 4194304"),
            (options.workers(0), "give at least 1"),
            (EngineOptions { max_attempts: attempts, ..options }, "lower max_attempts"),
        ] {
            let error = options.check().expect_err(advice);
            assert_eq!((error.kind(), error.advice()), (ErrorKind::Usage, Some(advice)));
        }
    }

    #[test]
    fn shares_add_up_to_what_one_would_have() {
        for engines in [1, 2, 3, 8] {
            let (whole, _) = resolve(EngineOptions::new(), None, FACTS).expect("it fits");
            let parts = parts(EngineOptions::new(), engines);
            let sum = |of: fn(&Config) -> u64| parts.iter().map(of).sum::<u64>();
            assert_eq!(sum(|part| part.workers as u64), whole.workers as u64, "{engines}");
            assert_eq!(sum(|part| part.connections() as u64), whole.connections() as u64);
            assert!(sum(|part| part.memory_bytes) <= whole.memory_bytes, "{parts:?}");
        }
    }

    #[test]
    fn what_is_asked_for_is_shared_and_nobody_has_nothing() {
        let parts = parts(EngineOptions::new().workers(2).connections(5), 3);
        let connections: Vec<usize> = parts.iter().map(Config::connections).collect();
        assert_eq!(connections, [2, 2, 1]);
        assert!(parts.iter().all(|part| part.workers == 1));
        let limit = NonZeroU64::new(2);
        let options =
            EngineOptions { bandwidth_limit_bytes_per_second: limit, ..EngineOptions::new() };
        let (_, bandwidth) = resolve(options.share(2, 4), None, FACTS).expect("it fits");
        assert_eq!(bandwidth, Some(NonZeroU64::MIN));
    }

    #[test]
    fn a_share_that_is_none_is_refused() {
        let refused =
            resolve(EngineOptions::new().share(2, 2), None, FACTS).expect_err("0 and 1 are");
        assert_eq!(refused.kind(), ErrorKind::Usage);
        assert!(refused.to_string().contains("no engine 2 of 2"), "{refused}");
    }
}
