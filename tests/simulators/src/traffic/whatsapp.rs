//! Accounts on WhatsApp whose devices answer; each person is a phone of their own, that encrypts what it says.

use std::{collections::HashMap, sync::Arc};

use super::{Heard, Network};
use crate::whatsapp::{Phone, WhatsApp};

/// The first person's number; far from those that tests pick by hand.
const FIRST_NUMBER: u64 = 447_700_000_000;

/// Accounts of a server; each person writes to one of them in a private chat.
pub struct WhatsAppAccounts {
    whatsapp: WhatsApp,
    accounts: Vec<Phone>,
    people: HashMap<usize, Phone>,
    heard: Option<Arc<Heard>>,
}

impl std::fmt::Debug for WhatsAppAccounts {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("WhatsAppAccounts").field("accounts", &self.accounts.len()).finish_non_exhaustive()
    }
}

impl WhatsAppAccounts {
    /// These accounts.
    pub fn new(whatsapp: &WhatsApp, accounts: &[Phone]) -> Self {
        Self { whatsapp: whatsapp.clone(), accounts: accounts.to_vec(), people: HashMap::new(), heard: None }
    }

    /// The phone of a person who has not spoken yet hears what the account says to it.
    fn person(&mut self, account: usize, person: usize) -> &Phone {
        let (whatsapp, accounts, heard) = (&self.whatsapp, &self.accounts, &self.heard);
        self.people.entry(person).or_insert_with(|| {
            let phone = whatsapp.phone(&(FIRST_NUMBER + person as u64).to_string());
            if let Some(heard) = heard.clone() {
                let number = accounts[account].number().to_owned();
                phone.watch(move |received| {
                    if received.from.number == number {
                        heard(account, person, received.text.as_deref().unwrap_or_default());
                    }
                });
            }
            phone
        })
    }
}

impl Network for WhatsAppAccounts {
    fn bots(&self) -> usize {
        self.accounts.len()
    }

    fn say(&mut self, bot: usize, person: usize, text: &str) {
        let number = self.accounts[bot].number().to_owned();
        self.person(bot, person).post(&number, text);
    }

    fn listen(&mut self, heard: Heard) {
        self.heard = Some(Arc::new(heard));
    }
}
