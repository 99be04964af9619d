//! The names by which the page of a served drive may be asked for.
//!
//! A page of some other site can have its own name point at this machine while a browser shows it (DNS rebinding), and
//! would then read the drive's page as one of its own site. The requests carry that site's name, so a request is
//! answered if it carries an address, `localhost`, or a name that `--http-name` gives. Nothing else is decided here: not
//! who may connect to the address.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::header::HOST;
use axum::http::uri::Authority;

/// The names that are not addresses.
#[derive(Clone, Debug)]
pub struct SiteNames(Vec<String>);

impl SiteNames {
    /// `localhost`, and these.
    pub fn new(further: &[String]) -> SiteNames {
        SiteNames(["localhost"].into_iter().chain(further.iter().map(String::as_str)).map(plain).collect())
    }

    /// Checks the names that a request carries. A request without a name is no browser's.
    ///
    /// # Errors
    /// A line that says which name is none of these.
    pub fn check(&self, request: &Request) -> Result<(), String> {
        let in_line = request.uri().authority().map(Authority::as_str);
        let in_head = request.headers().get_all(HOST).iter().map(|name| name.to_str().unwrap_or("?"));
        match in_line.into_iter().chain(in_head).find(|name| !self.have(name)) {
            None => Ok(()),
            Some(name) => Err(format!(
                "this page is not that of {name:?}: ask for it by an address or localhost, or serve with --http-name\n"
            )),
        }
    }

    /// Is `name`, which may have a port, an address or one of these?
    fn have(&self, name: &str) -> bool {
        let Ok(authority) = name.parse::<Authority>() else { return false };
        let host = authority.host();
        let address = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        address.parse::<IpAddr>().is_ok() || self.0.contains(&plain(host))
    }
}

/// A name as it is compared.
fn plain(name: &str) -> String {
    name.trim_end_matches('.').to_ascii_lowercase()
}

/// Reads the value of `--http-name`.
pub fn site_name(text: &str) -> Result<String, String> {
    let is_name = text.parse::<Authority>().is_ok_and(|name| name.host() == text);
    if is_name {
        Ok(text.to_owned())
    } else {
        Err("allowed: a name without a port, as drive.example.org".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_the_page_has_no_port_and_no_path() {
        assert_eq!(site_name("drive.example.org"), Ok("drive.example.org".to_owned()));
        for wrong in ["drive:80", "http://drive", "me@drive", "", "a b"] {
            assert!(site_name(wrong).unwrap_err().starts_with("allowed: "), "{wrong}");
        }
    }
}
