//! What each fault does.

use crate::event::Event;
use crate::huge::with_policy;
use crate::network::Window;
use crate::run::World;
use crate::schedule::Fault;
use crate::stubborn::Stubborn;
use fastrand::Rng;
use flotilla_sim::server::{Admission, Volumes};
use std::time::Duration;

impl World {
    /// Lets a fault happen, with luck of its own.
    pub(crate) fn strike(&mut self, fault: Fault, seed: u64) {
        let now_ms = self.now_ms;
        match fault {
            Fault::Lag(resource, for_ms) => {
                for watch in self.managers.iter_mut().filter_map(|m| m.watches.get_mut(&resource)) {
                    watch.lags_until_ms = now_ms + for_ms;
                }
            }
            Fault::Coalesce(resource, for_ms) => {
                for watch in self.managers.iter_mut().filter_map(|m| m.watches.get_mut(&resource)) {
                    watch.coalesces_until_ms = now_ms + for_ms;
                }
            }
            Fault::Break(resource, gone) => {
                for index in 0..self.managers.len() {
                    self.break_watch(index, resource);
                }
                if gone {
                    self.cluster.server.compact(resource);
                }
            }
            Fault::Repeat(resource, count) => {
                for index in 0..self.managers.len() {
                    self.repeat(index, resource, count);
                }
            }
            Fault::Requests(loss, for_ms, percent) => self.windows.push(Window {
                loss,
                until_ms: now_ms + for_ms,
                percent,
                rng: Rng::with_seed(seed),
            }),
            Fault::Crash(manager, 0, back_after_ms) => self.kill_manager(manager, back_after_ms),
            Fault::Crash(manager, writes, back_after_ms) => {
                self.managers[manager].dies_after = Some((writes, back_after_ms));
            }
            Fault::Leave(manager, back_after_ms) => self.ask_to_leave(manager, back_after_ms),
            Fault::Stop(manager, 0, for_ms) => self.stop_manager(manager, for_ms),
            Fault::Stop(manager, writes, for_ms) => self.managers[manager].stops_before = Some((writes, for_ms)),
            Fault::Away(for_ms) => {
                self.webhook_away_until_ms = self.webhook_away_until_ms.max(now_ms + for_ms);
            }
            Fault::Refuse(ordinal, refused, code, for_ms) => self.stubborn.push(Stubborn {
                key: self.pod_key(ordinal),
                refused,
                code,
                until_ms: now_ms + for_ms,
            }),
            Fault::Resizes(ordinal, container, is_infeasible, for_ms) => {
                let key = self.pod_key(ordinal);
                self.refuse_resizes(&key, Some((container, is_infeasible)));
                self.plan(for_ms, Event::Resizes(key));
            }
            Fault::Takers(way, after_ms, for_ms) => self.takers_come(way, after_ms, for_ms),
            Fault::SetBack(manager, by_ms) => self.set_clock_back(manager, Duration::from_millis(by_ms)),
            Fault::Pod(..) | Fault::Node(..) | Fault::Quota(..) | Fault::Webhook(..) | Fault::Volumes(..) => {
                self.strike_cluster(&fault);
            }
        }
    }

    fn strike_cluster(&mut self, fault: &Fault) {
        match *fault {
            Fault::Pod(ordinal, ailment, for_ms) => {
                let until = self.later(for_ms);
                self.cluster.ail(&self.pod_key(ordinal), ailment, until);
            }
            Fault::Node(node, for_ms) => {
                let until = self.later(for_ms);
                self.cluster.lose_node(node, until);
                self.last_lost = Some(node);
            }
            Fault::Quota(pods_max, for_ms) => {
                let pods_max = Some(pods_max);
                self.admit(
                    for_ms,
                    Admission {
                        pods_max,
                        ..Admission::default()
                    },
                );
            }
            Fault::Webhook(refuses_pods, for_ms) => {
                let changes_pods = !refuses_pods;
                self.admit(
                    for_ms,
                    Admission {
                        refuses_pods,
                        changes_pods,
                        ..Admission::default()
                    },
                );
            }
            Fault::Volumes(adds, for_ms) => {
                let volumes = if adds { Volumes::OneMore } else { Volumes::Swapped };
                self.admit(
                    for_ms,
                    Admission {
                        volumes,
                        ..Admission::default()
                    },
                );
            }
            Fault::Lag(..)
            | Fault::Break(..)
            | Fault::Repeat(..)
            | Fault::Coalesce(..)
            | Fault::Requests(..)
            | Fault::Crash(..)
            | Fault::Leave(..)
            | Fault::Stop(..)
            | Fault::Refuse(..)
            | Fault::Resizes(..)
            | Fault::Takers(..)
            | Fault::SetBack(..)
            | Fault::Away(..) => {}
        }
    }

    fn admit(&mut self, for_ms: u64, admission: Admission) {
        self.last_admission = Some(admission.clone());
        self.admissions.push((self.now_ms + for_ms, admission));
        self.admission_changes();
        self.plan(for_ms, Event::AdmissionEnds);
    }

    /// Of several rules in force the one that came last counts.
    pub(crate) fn admission_changes(&mut self) {
        let now_ms = self.now_ms;
        self.admissions.retain(|(until_ms, _)| *until_ms > now_ms);
        let now = self.admissions.last().map(|(_, a)| a.clone()).unwrap_or_default();
        self.cluster.server.admission = with_policy(now, self.room(), &self.schedule.set);
    }
}
