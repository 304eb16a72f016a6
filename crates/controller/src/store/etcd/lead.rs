//! Who leads: the controller whose key is in etcd, as long as its lease lives.
//!
//! Problem   Several controllers, one writer. A process that was paused or cut off may think that it
//!           leads still.
//! Approach  The leader's key is bound to a lease of some seconds, which the leader prolongs three times
//!           as often. Who finds no key makes it. A leader that could not prolong the lease stops by its
//!           own clock before etcd ends the lease.
//! Promises  Two may think that they lead, but one alone can write: every transaction asks whether the
//!           key is still the one that this leader made (`create_revision`).

use super::client::Client;
use super::messages::{KeyValue, TxnRequest, created, get, put};
use crate::store::{Leader, Standing, StoreError};
use serde::{Deserialize, Serialize};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// How often a follower looks whether there is a leader. Larger means a later change of leaders.
const LOOK: Duration = Duration::from_millis(200);
/// How long one look may take.
const PATIENCE: Duration = Duration::from_secs(3);

/// The value of the leader's key.
#[derive(Clone, Serialize, Deserialize)]
pub(super) struct Sign {
    /// Drawn anew by each process.
    pub(super) id: String,
    pub(super) leader: Leader,
}

/// Told that the standing changed.
pub(super) type Bell = Arc<OnceLock<Box<dyn Fn() + Send + Sync>>>;

/// One candidate.
pub(super) struct Candidate {
    pub(super) client: Arc<Client>,
    pub(super) key: String,
    pub(super) sign: Sign,
    /// How long a leader's lease lives without its leader.
    pub(super) lease: Duration,
    pub(super) standing: watch::Sender<Standing>,
    /// Until when this process leads by its own clock, while it does.
    pub(super) until: watch::Sender<Instant>,
    pub(super) bell: Bell,
    /// Somebody suspects that the standing is another.
    pub(super) look: Arc<Notify>,
    /// The lease, while there is one: it is given back at the end.
    pub(super) held: watch::Sender<i64>,
}

impl Candidate {
    /// Stands for leader for ever.
    pub(super) async fn run(self) {
        loop {
            match self.stand().await {
                Ok(Some((lease, term, until))) => self.reign(lease, term, until).await,
                Ok(None) => {}
                Err(error) => {
                    self.stands(Standing::Follows { leader: None, why: error.to_string() })
                }
            }
            tokio::select! {
                () = tokio::time::sleep(LOOK) => {}
                () = self.look.notified() => {}
            }
        }
    }

    fn stands(&self, standing: Standing) {
        let changed = self.standing.send_if_modified(|present| {
            let changed = *present != standing;
            *present = standing;
            changed
        });
        if changed {
            self.ring();
        }
    }

    fn ring(&self) {
        if let Some(bell) = self.bell.get() {
            bell();
        }
    }

    /// Looks for a leader, and becomes it if there is none: its lease, its term, and until when the lease
    /// lives at least.
    async fn stand(&self) -> Result<Option<(i64, u64, Instant)>, StoreError> {
        let look = TxnRequest { success: vec![get(self.key.as_str())], ..TxnRequest::default() };
        let found = self.client.txn(look, PATIENCE).await?;
        if let Some(kv) = found.read(0) {
            let sign: Option<Sign> = serde_json::from_slice(&kv.value).ok();
            if sign.as_ref().is_some_and(|sign| sign.id == self.sign.id) {
                // Of a former term of this process, which ended by its own clock.
                self.client.revoke(kv.lease, PATIENCE).await?;
                return Ok(None);
            }
            let leader = sign.map(|sign| sign.leader);
            self.stands(Standing::Follows { leader, why: "another controller leads".into() });
            return Ok(None);
        }
        let seconds = i64::try_from(self.lease.as_secs()).unwrap_or(1).max(1);
        let began = Instant::now();
        let granted = self.client.grant(seconds, PATIENCE).await?;
        self.held.send_replace(granted.id);
        let sign = serde_json::to_vec(&self.sign).expect("plain data is JSON");
        let become_leader = TxnRequest {
            compare: vec![created(self.key.as_str(), 0)],
            success: vec![put(self.key.as_str(), sign, granted.id), get(self.key.as_str())],
            failure: vec![get(self.key.as_str())],
        };
        let done = self.client.txn(become_leader, PATIENCE).await?;
        let kv = done.read(usize::from(done.succeeded));
        // The transaction may have been done in an attempt whose answer was lost.
        match kv.filter(|kv| kv.lease == granted.id) {
            Some(kv) => {
                let term = u64::try_from(kv.create_revision).unwrap_or(0);
                Ok(Some((granted.id, term, began + self.lease)))
            }
            None => {
                self.client.revoke(granted.id, PATIENCE).await?;
                Ok(None)
            }
        }
    }

    /// Leads until the lease cannot be prolonged.
    async fn reign(&self, lease: i64, term: u64, mut until: Instant) {
        tracing::info!("leads, term {term}");
        self.until.send_replace(until);
        self.stands(Standing::Leads { term });
        let part = self.lease / 3;
        let mut trouble = "it was paused".to_owned();
        let why = loop {
            let doubted = tokio::select! {
                () = tokio::time::sleep_until(until - part * 2) => false,
                () = self.look.notified() => true,
            };
            let began = Instant::now();
            let left = until.saturating_duration_since(began);
            if left.is_zero() {
                break format!("this controller could not prolong its lease in time: {trouble}");
            }
            if doubted && self.is_replaced(term, left).await {
                break "somebody removed its key".into();
            }
            match self.client.keep_alive(lease, left.min(part.max(LOOK))).await {
                // The lease lives from when etcd got the request, which is after `began`.
                Ok(true) if Instant::now() < until => {
                    until = began + self.lease;
                    self.until.send_replace(until);
                    // The writer may just have been told that the lease has run out.
                    self.ring();
                }
                Ok(true) => break "this controller was paused beyond its lease".into(),
                Ok(false) => break "its lease ended".into(),
                Err(error) => trouble = error.to_string(),
            }
        };
        tracing::warn!("leads no longer: {why}");
        self.stands(Standing::Follows { leader: None, why });
    }

    /// Whether the leader's key is not the one of this term.
    async fn is_replaced(&self, term: u64, patience: Duration) -> bool {
        let look = TxnRequest { success: vec![get(self.key.as_str())], ..TxnRequest::default() };
        let found = self.client.txn(look, patience).await;
        let of = |kv: &KeyValue| u64::try_from(kv.create_revision).unwrap_or(0);
        found.is_ok_and(|found| found.read(0).map(of) != Some(term))
    }
}
