//! The task that holds certificates: obtains what is missing, renews in time, and waits after failures.
//!
//! One certificate is worked on at a time: the authority is asked gently, and a failure of one delays the
//! others by minutes at most, where days are left. The task sleeps for an hour at the longest, so that a
//! clock that is set is noticed, and so is a certificate that another process has put into the state folder.

use crate::authority::{Account, Authority};
use crate::failure::Failure;
use crate::key::base64url;
use crate::order::{Obtained, Wanted, obtain};
use crate::progress::Progress;
use crate::renewal::{self, Life};
use crate::settings::Settings;
use crate::site::{Event, Site};
use crate::state::{Failures, Folder, Kept};
use ringroad_engine::sync::oneshot;
use ringroad_engine::{spawn_blocking, time};
use ringroad_tls::{Issued, Pair};
use std::fs::File;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, SystemTime};

/// The longest sleep.
const SLICE: Duration = Duration::from_secs(60 * 60);
/// How long to wait while another process asks the authority.
const LOCKED: Duration = Duration::from_secs(30);

/// Work to be done on a runtime's thread.
pub type Work = Box<dyn FnOnce() -> Pin<Box<dyn Future<Output = ()>>> + Send>;

/// Keeps certificates until it is dropped.
#[derive(Debug)]
pub struct Keeper {
    settings: Settings,
    progress: Arc<Progress>,
    /// Dropped, the work ends.
    _stop: oneshot::Sender<()>,
}

impl Keeper {
    /// Makes a keeper, and the work that a runtime has to do for it.
    pub fn new(settings: Settings, site: Arc<dyn Site>) -> (Keeper, Work) {
        let first = |names: &Vec<String>| names.first().cloned().unwrap_or_default();
        let progress = Arc::new(Progress::new(settings.certificates.iter().map(first)));
        let (stop, stopped) = oneshot::channel::<()>();
        let (own, shared) = (settings.clone(), Arc::clone(&progress));
        let work: Work = Box::new(move || {
            Box::pin(async move {
                let (mut stopped, mut work) = (pin!(stopped), pin!(run(own, site, shared)));
                poll_fn(|context| {
                    if stopped.as_mut().poll(context).is_ready() {
                        return Poll::Ready(());
                    }
                    work.as_mut().poll(context)
                })
                .await;
            })
        });
        (Keeper { settings, progress, _stop: stop }, work)
    }

    /// Returns what it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Returns what it has done and will do.
    pub fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }
}

/// A certificate that is kept.
struct One {
    names: Vec<String>,
    held: Option<Kept>,
    failures: u32,
    /// Not before this is another attempt made.
    again: SystemTime,
    suggested: Option<Suggested>,
    /// When the renewal information is looked at next.
    look: SystemTime,
    /// What is held and could not be written into the state folder: the chain and the key.
    unsaved: Option<(String, String)>,
    /// What was there at the start for some of its names, until it is held itself. Here and not in the folder
    /// alone: that may go while the server runs.
    stand_ins: Vec<Pair>,
}

/// What the authority suggests, with the moment in it that was chosen.
struct Suggested {
    window: (SystemTime, SystemTime),
    moment: SystemTime,
}

impl One {
    fn life(&self) -> Option<Life> {
        self.held.as_ref().map(|kept| life(&kept.issued))
    }

    /// Returns when the certificate is to be obtained.
    fn obtain_at(&self) -> SystemTime {
        let suggested = self.suggested.as_ref().map(|suggested| suggested.moment);
        self.life().map_or(self.again, |life| life.renew(suggested).max(self.again))
    }

    /// Returns when there is something to do for it.
    fn due(&self) -> SystemTime {
        let look = self.held.as_ref().and_then(|kept| id(&kept.issued)).map(|_| self.look);
        look.map_or(self.obtain_at(), |look| look.min(self.obtain_at()))
    }

    /// Holds another certificate.
    fn hold(&mut self, kept: Kept, now: SystemTime) {
        self.held = Some(kept);
        self.suggested = None;
        self.look = now;
        self.unsaved = None;
        self.stand_ins.clear();
    }
}

fn life(issued: &Issued) -> Life {
    Life { begins: issued.begins, expires: issued.expires }
}

/// Returns how renewal information identifies a certificate (RFC 9773 §4.1).
fn id(issued: &Issued) -> Option<String> {
    let authority = issued.authority_key_id.as_ref()?;
    Some(format!("{}.{}", base64url(authority), base64url(&issued.serial)))
}

/// All that is kept.
struct State {
    settings: Settings,
    folder: Folder,
    site: Arc<dyn Site>,
    progress: Arc<Progress>,
    all: Vec<One>,
}

async fn run(settings: Settings, site: Arc<dyn Site>, progress: Arc<Progress>) {
    let mut state = State::new(settings, site, progress);
    state.show();
    loop {
        let due = state.all.iter().map(One::due).enumerate().min_by_key(|(_, due)| *due);
        let Some((at, due)) = due else { return };
        let wait = due.duration_since(SystemTime::now()).unwrap_or_default();
        if !wait.is_zero() {
            time::sleep(wait.min(SLICE)).await;
            state.save_again().await;
            if wait > SLICE {
                state.look_into_folder();
            }
            continue;
        }
        state.act(at).await;
        state.show();
    }
}

impl State {
    fn new(settings: Settings, site: Arc<dyn Site>, progress: Arc<Progress>) -> State {
        let folder = Folder::of(&settings);
        let now = SystemTime::now();
        let one = |names: &Vec<String>| {
            let failures = folder.failures(names);
            // Why one cannot be read was told at the start.
            let held = folder.certificate(names).ok().flatten();
            One {
                names: names.clone(),
                stand_ins: if held.is_none() { folder.stand_ins(names) } else { Vec::new() },
                held,
                failures: failures.count,
                // A clock that was wrong must not stop this for longer than waits are.
                again: failures.again().min(now + renewal::wait(u32::MAX, settings.retry, None, 1.0)),
                suggested: None,
                look: now,
                unsaved: None,
            }
        };
        let all = settings.certificates.iter().map(one).collect();
        State { settings, folder, site, progress, all }
    }

    /// Does what is due for a certificate.
    async fn act(&mut self, at: usize) {
        let now = SystemTime::now();
        let Some(one) = self.all.get(at) else { return };
        let (obtain, look) = (one.obtain_at() <= now, one.look <= now);
        let known = one.held.as_ref().and_then(|kept| id(&kept.issued)).filter(|_| look);
        let authority = match Authority::reach(&self.settings).await {
            Ok(authority) => authority,
            Err(why) if obtain => return self.failed(at, why).await,
            Err(why) => return self.looked(at, None, why.retry_after),
        };
        if let Some(id) = known {
            self.ask_when(at, &authority, &id).await;
        }
        if self.all.get(at).is_none_or(|one| one.obtain_at() > now) {
            return;
        }
        let lock = match self.folder.lock() {
            Ok(Some(lock)) => lock,
            Ok(None) => {
                if let Some(one) = self.all.get_mut(at) {
                    one.again = now + LOCKED;
                }
                return;
            }
            Err(why) => return self.failed(at, Failure::here(why)).await,
        };
        // Another process may have been faster.
        self.look_into_folder();
        if self.all.get(at).is_none_or(|one| one.obtain_at() > now) {
            return;
        }
        match self.order(at, &authority, lock).await {
            Ok(()) => {}
            Err(why) => self.failed(at, why).await,
        }
    }

    /// Asks the authority when it wants a certificate to be renewed.
    async fn ask_when(&mut self, at: usize, authority: &Authority, id: &str) {
        match authority.renewal(id).await {
            Some(Ok(answer)) => {
                self.looked(at, renewal::window(answer.bytes()), answer.retry_after);
            }
            // Renewal goes on without: it is a suggestion.
            Some(Err(why)) => self.looked(at, None, why.retry_after),
            None => self.looked(at, None, Some(Duration::MAX)),
        }
    }

    /// Keeps what a look at the renewal information has found.
    fn looked(&mut self, at: usize, window: Option<(SystemTime, SystemTime)>, asked: Option<Duration>) {
        let Some(one) = self.all.get_mut(at) else { return };
        one.look = SystemTime::now() + renewal::look_again(asked);
        // The moment stays as long as the window does: another look must not draw again.
        if let Some(window) = window
            && one.suggested.as_ref().is_none_or(|suggested| suggested.window != window)
        {
            let moment = renewal::within(window.0, window.1, fastrand::f64());
            one.suggested = Some(Suggested { window, moment });
        }
    }

    /// Orders a certificate, keeps it and puts it in force.
    async fn order(&mut self, at: usize, authority: &Authority, lock: File) -> Result<(), Failure> {
        let Some(one) = self.all.get(at) else { return Ok(()) };
        let names = one.names.clone();
        // What cannot be kept is not asked for: the authority gives the same names a few certificates a week.
        let folder = self.folder.clone();
        let room = spawn_blocking(move || folder.prepare()).await;
        let room = room.map_err(|why| Failure::here(why.to_string()))?;
        room.map_err(|why| Failure::here(format!("{why}; nothing was asked for")))?;
        let one = self.all.get(at);
        let replaces = one.and_then(|one| one.held.as_ref()).and_then(|kept| id(&kept.issued));
        let wanted = Wanted {
            names: &names,
            kind: self.settings.challenge,
            profile: self.settings.profile.as_deref(),
            replaces,
        };
        let obtained = match self.obtain(authority, &wanted).await {
            // The authority has forgotten the account, or it was closed: another one is made, once.
            Err(why) if why.is("accountDoesNotExist") => {
                let known = self.folder.account().map_err(Failure::here)?;
                if let Some(mut known) = known {
                    known.url = None;
                    self.folder.save_account(&known).map_err(Failure::here)?;
                }
                self.obtain(authority, &wanted).await
            }
            obtained => obtained,
        }?;
        let (folder, own) = (self.folder.clone(), names.clone());
        let save = move || {
            let _lock = lock;
            let Obtained { chain_pem, key_pem } = obtained;
            let pair = ringroad_tls::Pair::from_pem(&chain_pem, &key_pem)?;
            let issued = ringroad_tls::examine(&pair)?;
            if let Some(name) = own.iter().find(|name| !issued.names.covers(name)) {
                return Err(format!("the authority's certificate does not cover {name}"));
            }
            // It was given, so it is used, whether it can be kept or not.
            let unsaved = folder.save_certificate(&own, &chain_pem, &key_pem).err();
            // What failed before does not matter any more; a file that stays would only cost time.
            let _ = folder.save_failures(&own, Failures::default());
            Ok((Kept { pair, issued }, unsaved.map(|why| (why, (chain_pem, key_pem)))))
        };
        let saved = spawn_blocking(save).await;
        let (kept, unsaved) = saved.map_err(|why| Failure::here(why.to_string()))?.map_err(Failure::here)?;
        let (why, unsaved) = unsaved.unzip();
        let now = SystemTime::now();
        let life = life(&kept.issued);
        if let Some(one) = self.all.get_mut(at) {
            one.hold(kept, now);
            one.unsaved = unsaved;
            one.failures = 0;
            one.again = now + life.pause();
        }
        self.install()?;
        self.progress.change(at, |progress| progress.obtained += 1);
        let (expires, renew) = (life.expires, life.renew(None));
        self.site.report(Event::Obtained { names: names.clone(), expires, renew });
        if let Some(why) = why {
            self.site.report(Event::NotKept { names, why });
        }
        Ok(())
    }

    /// Writes what could not be written before.
    async fn save_again(&mut self) {
        for one in &mut self.all {
            let Some((chain, key)) = one.unsaved.take() else { continue };
            let (folder, names) = (self.folder.clone(), one.names.clone());
            let save = move || {
                let saved = folder.prepare().and_then(|()| folder.save_certificate(&names, &chain, &key));
                saved.err().map(|_| (chain, key))
            };
            // A thread that could not be had has taken it along: it stays in force.
            one.unsaved = spawn_blocking(save).await.ok().flatten();
        }
    }

    async fn obtain(&self, authority: &Authority, wanted: &Wanted<'_>) -> Result<Obtained, Failure> {
        let account = Account::enter(authority, &self.settings, &self.folder).await?;
        obtain(&account, wanted, &*self.site).await
    }

    /// Puts all that is held in force.
    fn install(&self) -> Result<(), Failure> {
        // Those that stand in until there is one are in force as well.
        let stand_ins = self.all.iter().flat_map(|one| one.stand_ins.iter().cloned());
        let held = self.all.iter().filter_map(|one| one.held.as_ref()).map(|kept| kept.pair.clone());
        self.site.install(held.chain(stand_ins).collect()).map_err(Failure::here)
    }

    /// Takes what another process has put into the state folder.
    fn look_into_folder(&mut self) {
        let mut taken = Vec::new();
        for one in &mut self.all {
            let Ok(Some(kept)) = self.folder.certificate(&one.names) else { continue };
            let is_newer = one.held.as_ref().is_none_or(|held| held.issued.expires < kept.issued.expires);
            if is_newer {
                taken.push(Event::TakenOver { names: one.names.clone(), expires: kept.issued.expires });
                one.hold(kept, SystemTime::now());
            }
        }
        if !taken.is_empty() && self.install().is_ok() {
            taken.into_iter().for_each(|event| self.site.report(event));
        }
    }

    /// Keeps that an attempt has failed, and reports it.
    async fn failed(&mut self, at: usize, why: Failure) {
        let Some(one) = self.all.get_mut(at) else { return };
        one.failures = one.failures.saturating_add(1);
        let wait = renewal::wait(one.failures, self.settings.retry, why.retry_after, fastrand::f64());
        one.again = SystemTime::now() + wait;
        let names = one.names.clone();
        let (folder, own, failures) =
            (self.folder.clone(), names.clone(), Failures::new(one.failures, one.again));
        let expires = one.held.as_ref().map(|kept| kept.issued.expires);
        let _ = spawn_blocking(move || folder.save_failures(&own, failures)).await;
        self.progress.change(at, |progress| progress.failed += 1);
        self.site.report(Event::Failed { names, why: why.to_string(), again: wait, expires });
    }

    /// Shows what is due, for metrics.
    fn show(&self) {
        for (at, one) in self.all.iter().enumerate() {
            self.progress.change(at, |progress| {
                progress.failures = one.failures;
                progress.next = Some(one.obtain_at());
            });
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;
    use crate::site::Challenge;
    use crate::state::tests::{keep, settings};
    use std::sync::Mutex;

    /// A site that notes how many pairs are in force.
    #[derive(Default)]
    struct Noted(Mutex<Vec<usize>>);

    impl Site for Noted {
        fn answer(&self, _: &Challenge) -> Result<(), String> {
            Ok(())
        }

        fn forget(&self, _: &Challenge) {}

        fn install(&self, pairs: Vec<Pair>) -> Result<(), String> {
            self.0.lock().unwrap().push(pairs.len());
            Ok(())
        }

        fn report(&self, _: Event) {}
    }

    #[test]
    fn what_stands_in_stays_in_force_where_its_folder_has_gone() {
        let state = tempfile::tempdir().unwrap();
        let before = settings(state.path(), &["a.test"]);
        let folder = Folder::of(&before);
        folder.prepare().unwrap();
        keep(&folder, &["a.test"]);
        keep(&folder, &["b.test"]);
        let names = |all: &[&str]| all.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let certificates = vec![names(&["a.test", "new.test"]), names(&["b.test"])];
        let wanted = Settings { certificates, ..before };
        let site = Arc::new(Noted::default());
        let progress = Progress::new(wanted.certificates.iter().map(|names| names[0].clone()));
        let mut all = State::new(wanted, Arc::clone(&site) as Arc<dyn Site>, Arc::new(progress));
        std::fs::remove_dir_all(state.path()).unwrap();
        all.install().unwrap();
        // Its own is there: nothing stands in any more.
        let other = tempfile::tempdir().unwrap();
        let wanted = settings(other.path(), &["a.test", "new.test"]);
        let folder = Folder::of(&wanted);
        folder.prepare().unwrap();
        keep(&folder, &["a.test", "new.test"]);
        let kept = folder.certificate(&wanted.certificates[0]).unwrap().unwrap();
        all.all[0].hold(kept, SystemTime::now());
        all.install().unwrap();
        assert_eq!(*site.0.lock().unwrap(), [2, 2]);
        assert!(all.all[0].stand_ins.is_empty());
    }
}
