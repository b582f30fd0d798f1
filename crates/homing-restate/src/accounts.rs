//! `Accounts`: the budget accounts of the runs on this worker, kept by objects of the server.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
    time::SystemTime,
};

use homing_core::{fact::Reservation, message::Usage};
use homing_runtime::journal::{AccountHold, JournalError};
use serde::{Serialize, de::DeserializeOwned};
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use crate::{
    account_object::{Hold, Settlement},
    bodies::sha256,
    journal::unwritable,
    protocol::ACCOUNT,
    server::Server,
};

/// Limits of accounts per UTC day in micro-dollars, by name.
pub type AccountLimits = BTreeMap<String, Option<u64>>;

/// The accounts, as runs on this worker use them.
pub(crate) struct Accounts {
    // Requests are sent one after another: a reservation must not overtake the settlement of the call before it.
    queue: mpsc::UnboundedSender<Request>,
}

enum Request {
    Hold { account: String, run: Uuid, hold: Reservation, done: oneshot::Sender<Result<AccountHold, JournalError>> },
    Settle { account: String, run: Uuid, used: Reservation },
}

impl Accounts {
    pub(crate) fn new(server: Server, limits: Arc<AccountLimits>) -> Self {
        let (queue, requests) = mpsc::unbounded_channel();
        tokio::spawn(Sender { server, limits, open: HashMap::new() }.work(requests));
        Self { queue }
    }

    /// Reserves for the model call of a run.
    pub(crate) async fn hold(&self, account: &str, run: Uuid, hold: Reservation) -> Result<AccountHold, JournalError> {
        let (done, result) = oneshot::channel();
        let _ = self.queue.send(Request::Hold { account: account.to_owned(), run, hold, done });
        result.await.unwrap_or_else(|_| Err(JournalError::Unwritable("the account cannot be reached".to_owned())))
    }

    /// Replaces the reservation of a run by what was used.
    pub(crate) fn settle(&self, account: &str, run: Uuid, used: Usage) {
        let used = Reservation { tokens: used.tokens(), cost_micros: used.cost_micros };
        let _ = self.queue.send(Request::Settle { account: account.to_owned(), run, used });
    }
}

/// Sends the requests of a worker.
struct Sender {
    server: Server,
    limits: Arc<AccountLimits>,
    /// The call in progress of each run, if this worker reserved for it.
    open: HashMap<Uuid, Uuid>,
}

impl Sender {
    async fn work(mut self, mut requests: mpsc::UnboundedReceiver<Request>) {
        while let Some(request) = requests.recv().await {
            match request {
                Request::Hold { account, run, hold, done } => {
                    let _ = done.send(self.hold(&account, run, hold).await);
                }
                Request::Settle { account, run, used } => {
                    let settlement = Settlement { run, call: self.open.remove(&run), used };
                    if let Err(error) = self.send::<()>(&account, "settle", &settlement).await {
                        tracing::warn!(account, %run, %error, "the reservation stays charged in full");
                    }
                }
            }
        }
    }

    async fn hold(&mut self, account: &str, run: Uuid, hold: Reservation) -> Result<AccountHold, JournalError> {
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let at = u64::try_from(since.as_millis()).unwrap_or(u64::MAX);
        let per_day_micros = self.limits.get(account).copied().flatten();
        let wanted = Hold { run, call: Uuid::now_v7(), at, hold, per_day_micros };
        let result = self.send(account, "hold", &wanted).await?;
        if result == AccountHold::Held {
            self.open.insert(run, wanted.call);
        }
        Ok(result)
    }

    /// Sends a request until the server has answered it. The object recognises one that it has already seen.
    async fn send<T: DeserializeOwned>(
        &self,
        account: &str,
        handler: &str,
        request: &impl Serialize,
    ) -> Result<T, JournalError> {
        self.server.call_until_answered(&[ACCOUNT, &sha256(account), handler], request).await.map_err(unwritable)
    }
}
