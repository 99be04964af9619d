//! `async`, here on tokio: any executor works.
//!
//! `cargo run --release -p kvdrive --example futures`

use std::sync::Arc;

#[tokio::main]
pub(crate) async fn main() -> anyhow::Result<()> {
    let drive = kvdrive::open("nvmevirt-970pro")?;
    let client = Arc::new(drive.async_client()?);
    let tasks: Vec<_> = (0..8_u32)
        .map(|task| {
            let client = client.clone();
            tokio::spawn(async move {
                let key = task.to_be_bytes();
                client.store(&key, &vec![task as u8; 5000]).await?;
                client.get(&key).await
            })
        })
        .collect();
    for (task, result) in tasks.into_iter().enumerate() {
        assert_eq!(result.await??, Some(vec![task as u8; 5000]));
    }
    let mut pairs = client.pairs_from(&5_u32.to_be_bytes()).await?;
    let mut found = 0;
    while let Some((key, value)) = pairs.next().await? {
        println!("{key:?}: {} bytes", value.len());
        found += 1;
    }
    assert_eq!(found, 3);
    Ok(())
}
