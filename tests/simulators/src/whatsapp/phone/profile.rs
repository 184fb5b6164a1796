//! What a person does with the account on the phone: link devices, show a name and a picture, keep what was said.

use std::time::Duration;

use tokio::sync::oneshot;
use waproto::whatsapp::history_sync::HistorySyncType;

use super::{History, Order, Phone, PhoneError};
use crate::whatsapp::{
    account::Account,
    address::Address,
    pairing::{self, Code, PairingRefused},
    picture::Picture,
};

impl Phone {
    /// Scans a code that a device shows. The device's address from now on.
    pub fn scan(&self, code: &str) -> Result<Address, PairingRefused> {
        let code = Code::read(code).ok_or(PairingRefused::NotACode)?;
        pairing::accept(&self.server, &self.number, &code)
    }

    /// Types the digits that a device shows, which asked this number to be linked. The device's address from now on.
    pub async fn link(&self, digits: &str, within: Duration) -> Result<Address, PairingRefused> {
        let (done, linked) = oneshot::channel();
        let _ = self.orders.send(Order::Link { digits: digits.to_owned(), done });
        let linked = tokio::time::timeout(within, linked).await;
        linked.ok().and_then(Result::ok).unwrap_or(Err(PairingRefused::Gone))
    }

    /// Whether a device waits for the digits that it shows.
    pub fn is_asked_for_digits(&self) -> bool {
        let state = self.server.state();
        let asks =
            |pairing: &pairing::Pairing| pairing.by_code.as_ref().is_some_and(|asked| asked.number == self.number);
        state.pairings.values().any(asks)
    }

    /// The linked devices.
    pub fn devices(&self) -> Vec<Address> {
        let state = self.server.state();
        let account = state.account(&self.number);
        account.into_iter().flat_map(Account::addresses).filter(|address| !address.is_phone()).collect()
    }

    /// Unlinks a device: it is told, and so is everybody else.
    pub fn unlink(&self, device: &Address) {
        pairing::remove(&self.server, &mut self.server.state(), device);
        self.server.changed();
    }

    /// What the others see as this person's name.
    pub fn set_name(&self, name: &str) {
        if let Some(account) = self.server.state().account_mut(&self.number) {
            account.name = name.to_owned();
        }
    }

    /// Shows a picture to everybody.
    pub fn set_picture(&self, bytes: &[u8]) {
        let picture = self.server.show(bytes.to_vec());
        self.put_picture(picture);
    }

    /// Shows the picture to nobody.
    pub fn hide_picture(&self) {
        self.put_picture(Picture::Hidden);
    }

    /// Takes the picture away.
    pub fn remove_picture(&self) {
        self.put_picture(Picture::None);
    }

    fn put_picture(&self, picture: Picture) {
        if let Some(account) = self.server.state().account_mut(&self.number) {
            account.picture = picture;
        }
    }

    /// What this phone hands to devices that are linked later, and to those that ask for more.
    pub fn remember(&self, chats: Vec<History>) {
        if let Some(account) = self.server.state().account_mut(&self.number) {
            account.history = chats;
        }
    }

    /// The media that this phone was sent is gone from it too: it can't be uploaded again.
    pub fn lose_media(&self, lost: bool) {
        if let Some(account) = self.server.state().account_mut(&self.number) {
            account.lost_media = lost;
        }
    }

    /// Hands chats of old times to a device, whether it asked or not.
    pub async fn hand_over(&self, device: &Address, chats: Vec<History>) -> Result<(), PhoneError> {
        let (done, handed) = oneshot::channel();
        let order = Order::HandOver { device: device.clone(), kind: HistorySyncType::RECENT, chats, done };
        self.orders.send(order).map_err(|_| PhoneError::Gone)?;
        handed.await.map_err(|_| PhoneError::Gone)?
    }
}
