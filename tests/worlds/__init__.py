"""What more than one test module uses: worlds, reference engines, drawn cases, toys and small helpers."""
