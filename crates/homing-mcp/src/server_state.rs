//! What all clients of one server share: the agents as they stand, the options, and the list of who is there.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak},
    time::Duration,
};

use homing::Homing;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::{client::Client, options::ServerOptions};

/// The clients that are there at once; each costs memory, and a client that comes back makes a new one.
const MOST_CLIENTS: usize = 256;

/// What all clients of one server share.
pub(crate) struct ServerState {
    homing: RwLock<Arc<Homing>>,
    pub(crate) options: ServerOptions,
    pub(crate) present: Arc<Present>,
}

impl ServerState {
    pub(crate) fn new(homing: Arc<Homing>, options: ServerOptions) -> Arc<Self> {
        let present = options.asker.as_ref().map(|asker| asker.present.clone()).unwrap_or_default();
        Arc::new(Self { homing: RwLock::new(homing), options, present })
    }

    /// The agents as they stand.
    pub(crate) fn homing(&self) -> Arc<Homing> {
        self.homing.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A new client, unless too many are there.
    pub(crate) fn admit(self: &Arc<Self>) -> Option<Arc<Client>> {
        let mut clients = self.present.lock();
        clients.retain(|it| it.strong_count() > 0);
        if clients.len() >= MOST_CLIENTS {
            return None;
        }
        let client = Arc::new(Client::new(self.clone()));
        clients.push(Arc::downgrade(&client));
        Some(client)
    }

    /// Looks for changed agents for as long as the guard lives.
    pub(crate) fn watch(self: &Arc<Self>) -> Watch {
        let Some(reload) = self.options.reload.clone() else { return Watch(None) };
        let (served, every) = (self.clone(), self.options.reload_every.max(Duration::from_millis(10)));
        Watch(Some(tokio::spawn(async move {
            loop {
                tokio::time::sleep(every).await;
                if let Some(homing) = reload().await {
                    served.change(homing).await;
                }
            }
        })))
    }

    async fn change(&self, homing: Arc<Homing>) {
        *self.homing.write().unwrap_or_else(PoisonError::into_inner) = homing;
        for client in self.present.all() {
            client.agents_changed().await;
        }
    }
}

/// Who is there. A client is on this list for as long as its conversation lasts.
#[derive(Default)]
pub(crate) struct Present(Mutex<Vec<Weak<Client>>>);

impl Present {
    /// Every client that is there.
    pub(crate) fn all(&self) -> Vec<Arc<Client>> {
        self.lock().iter().filter_map(Weak::upgrade).collect()
    }

    /// The client whose run this is, or whose run it stands below.
    pub(crate) fn owner(&self, run: Uuid) -> Option<Arc<Client>> {
        self.all().into_iter().find(|client| client.find(run).is_some())
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Weak<Client>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Stops looking when it goes.
pub(crate) struct Watch(Option<JoinHandle<()>>);

impl Drop for Watch {
    fn drop(&mut self) {
        if let Some(task) = self.0.take() {
            task.abort();
        }
    }
}
