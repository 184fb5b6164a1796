//! Leases: a thousand of them are claimed or renewed in one round trip, by one script.

use std::{collections::HashMap, sync::Mutex, time::Duration};

use futures_util::future::try_join_all;

use super::{
    super::{Claim, Holder, Lease, RegistryError, Renewal, Resource},
    RedisRegistry,
};

/// So many are given to one run of a script. The server serves others between two runs; all go out in one go.
const AT_ONCE: usize = 1000;

/// The greatest token seen of each resource: a server that forgot must not give it again.
#[derive(Default)]
pub(super) struct Floors(Mutex<HashMap<Resource, u64>>);

impl Floors {
    fn of(&self, resources: &[Resource]) -> Vec<u64> {
        let floors = self.0.lock().expect("floors");
        resources.iter().map(|resource| floors.get(resource).copied().unwrap_or_default()).collect()
    }

    fn raise(&self, claims: &[Claim]) {
        let mut floors = self.0.lock().expect("floors");
        for claim in claims {
            if let Claim::Held(lease) = claim {
                let floor = floors.entry(lease.resource).or_default();
                *floor = lease.token.max(*floor);
            }
        }
    }
}

impl RedisRegistry {
    pub(super) async fn claim_all(
        &self,
        holder: &Holder,
        resources: &[Resource],
        supersede: bool,
    ) -> Result<Vec<Claim>, RegistryError> {
        let claims = try_join_all(batches(resources).map(async |batch| {
            let mut own = vec![u8::from(supersede).to_string()];
            for (resource, floor) in batch.iter().zip(self.floors.of(batch)) {
                own.extend([resource.to_string(), floor.to_string()]);
            }
            let answer: Vec<String> = self.run(&self.scripts.claim, holder, &own).await?;
            read_claims(batch, answer).ok_or_else(unreadable)
        }));
        let claims = claims.await?.concat();
        self.floors.raise(&claims);
        Ok(claims)
    }

    pub(super) async fn renew_all(&self, holder: &Holder, leases: &[Lease]) -> Result<Renewal, RegistryError> {
        let layout = *self.layout.lock().expect("layout");
        let layout = layout.and_then(|layout| serde_json::to_string(&layout).ok()).unwrap_or_default();
        let lost = try_join_all(batches(leases).map(async |batch| {
            let mut own = vec![layout.clone()];
            own.extend(named(batch));
            let lost: Vec<usize> = self.run(&self.scripts.renew, holder, &own).await?;
            let lost: Option<Vec<_>> = lost.into_iter().map(|at| batch.get(at).copied()).collect();
            lost.ok_or_else(unreadable)
        }));
        Ok(Renewal { lost: lost.await?.concat() })
    }

    pub(super) async fn release_all(&self, holder: &Holder, leases: &[Lease]) -> Result<(), RegistryError> {
        let released = try_join_all(batches(leases).map(async |batch| {
            let own: Vec<_> = named(batch).collect();
            let () = self.run(&self.scripts.release, holder, &own).await?;
            Ok(())
        }));
        released.await.map(|_| ())
    }
}

/// At least one, since also a renewal of nothing keeps the holder alive.
fn batches<T>(all: &[T]) -> impl Iterator<Item = &[T]> {
    let none = all.is_empty().then_some(all);
    all.chunks(AT_ONCE).chain(none)
}

fn named(leases: &[Lease]) -> impl Iterator<Item = String> {
    leases.iter().flat_map(|lease| [lease.resource.to_string(), lease.token.to_string()])
}

fn unreadable() -> RegistryError {
    RegistryError::Refused("a script of the registry gave an answer that can't be read".to_owned())
}

fn read_claims(resources: &[Resource], answer: Vec<String>) -> Option<Vec<Claim>> {
    let mut words = answer.into_iter();
    let claims = resources.iter().map(|resource| {
        Some(match words.next()?.as_str() {
            "1" => Claim::Held(Lease { resource: *resource, token: words.next()?.parse().ok()? }),
            _ => {
                let worker = Some(words.next()?).filter(|worker| !worker.is_empty());
                let worker = worker.unwrap_or_else(|| "whoever held it before the registry came back".to_owned());
                let by = Holder { worker, incarnation: words.next()?.parse().ok()? };
                Claim::Taken { by, remaining: Duration::from_millis(words.next()?.parse().ok()?) }
            }
        })
    });
    claims.collect()
}
