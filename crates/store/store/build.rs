//! Compiles the shim to RocksDB, with feature `rocksdb`; without it there is nothing to do.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    #[cfg(feature = "rocksdb")]
    {
        cxx_build::bridge("src/rocksdb/bridge.rs")
            .file("src/rocksdb/shim.cc")
            .std("c++17")
            .warnings(true)
            .flag_if_supported("-Wno-unused-parameter")
            .compile("kvdrive-rocksdb");
        println!("cargo::rustc-link-lib=rocksdb");
        for file in ["bridge.rs", "shim.h", "shim.cc"] {
            println!("cargo::rerun-if-changed=src/rocksdb/{file}");
        }
    }
}
