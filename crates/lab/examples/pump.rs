//! A program for `exec:` traffic: `pump serve PORT` takes all that comes, `pump send ADDRESS PORT`
//! sends all it can, `pump fail` says why it cannot. What iperf3 does, without having to be
//! installed.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words[..] {
        ["serve", port] => {
            let listener = TcpListener::bind(format!("0.0.0.0:{port}"))?;
            for stream in listener.incoming() {
                let mut stream = stream?;
                std::thread::spawn(move || {
                    let mut buffer = vec![0; 1 << 16];
                    while stream.read(&mut buffer).is_ok_and(|octets| octets > 0) {}
                });
            }
            Ok(())
        }
        ["send", address, port] => {
            let mut stream = TcpStream::connect(format!("{address}:{port}"))?;
            let zeros = vec![0; 1 << 16];
            loop {
                stream.write_all(&zeros)?;
            }
        }
        _ => {
            eprintln!("nothing to pump");
            std::process::exit(7);
        }
    }
}
