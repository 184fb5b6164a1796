//! All that the server knows, behind one lock: accounts with their devices, groups, and who is about to pair.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use wacore_binary::Jid;

use super::{
    account::{Account, Device},
    address::Address,
    group::Group,
    pairing::Pairing,
};

/// What the server knows.
#[derive(Debug, Default)]
pub(super) struct State {
    accounts: HashMap<String, Account>,
    /// From the hidden id to the number.
    lids: HashMap<String, String>,
    /// Who wrote to whom, both ways.
    met: HashMap<String, BTreeSet<String>>,
    pub(super) groups: BTreeMap<String, Group>,
    /// By the reference that a code shows.
    pub(super) pairings: HashMap<String, Pairing>,
}

impl State {
    pub(super) fn add(&mut self, account: Account) {
        self.lids.insert(account.lid.clone(), account.number.clone());
        self.accounts.insert(account.number.clone(), account);
    }

    pub(super) fn len(&self) -> usize {
        self.accounts.len()
    }

    pub(super) fn accounts(&self) -> impl Iterator<Item = &Account> {
        self.accounts.values()
    }

    pub(super) fn account(&self, number: &str) -> Option<&Account> {
        self.accounts.get(number)
    }

    pub(super) fn account_mut(&mut self, number: &str) -> Option<&mut Account> {
        self.accounts.get_mut(number)
    }

    pub(super) fn device(&self, address: &Address) -> Option<&Device> {
        self.accounts.get(&address.number)?.devices.get(&address.device)
    }

    pub(super) fn device_mut(&mut self, address: &Address) -> Option<&mut Device> {
        self.accounts.get_mut(&address.number)?.devices.get_mut(&address.device)
    }

    /// Whom an address on the wire means, by number or by hidden id. The device need not exist.
    pub(super) fn resolve(&self, jid: &Jid) -> Option<Address> {
        let number = if jid.is_lid() {
            self.lids.get(jid.user.as_str())?.clone()
        } else if jid.is_pn() {
            jid.user.to_string()
        } else {
            return None;
        };
        self.accounts.contains_key(&number).then(|| Address::new(number, jid.device))
    }

    /// An account's hidden id on the wire.
    pub(super) fn lid(&self, number: &str) -> Jid {
        Jid::lid(self.account(number).map(|account| account.lid.as_str()).unwrap_or_default())
    }

    /// The two have written to one another.
    pub(super) fn meet(&mut self, one: &str, other: &str) {
        if !self.met.get(one).is_some_and(|met| met.contains(other)) {
            self.met.entry(one.to_owned()).or_default().insert(other.to_owned());
            self.met.entry(other.to_owned()).or_default().insert(one.to_owned());
        }
    }

    /// Who has to know of a change to this account's devices: itself, whom it wrote to, and with whom it shares a group.
    pub(super) fn acquainted(&self, number: &str) -> BTreeSet<String> {
        let groups = self.groups.values().filter(|group| group.has(number));
        let members = groups.flat_map(|group| group.members.keys()).cloned();
        let met = self.met.get(number).into_iter().flatten().cloned();
        members.chain(met).chain([number.to_owned()]).collect()
    }

    /// All devices of these accounts.
    pub(super) fn devices_of<'a>(&self, numbers: impl IntoIterator<Item = &'a String>) -> Vec<Address> {
        numbers.into_iter().filter_map(|number| self.account(number)).flat_map(Account::addresses).collect()
    }
}
