"""Migrations of the schema, also concurrent ones."""

from collections.abc import Mapping
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from flotilla_manager.metadata import MetadataError, SchemaMissing, SchemaTooNew, Store, open_store, schema, tables
from support.metadata import in_processes, sql


def test_migrations_create_the_tables_of_the_code(store: Store) -> None:
    with store.read_transaction() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, tables.metadata) == []


def _described(index: Mapping[str, Any]) -> str:
    options = {name: str(value) for name, value in index.get("dialect_options", {}).items()}
    return str({**index, "dialect_options": options})


def test_migrations_create_the_constraints_and_indexes_of_the_code(store: Store) -> None:
    """Alembic does not compare them. They must equal those of tables created from the metadata object."""

    def described() -> dict[str, object]:
        with store.read_transaction() as connection:
            found = inspect(connection)
            return {
                name: (
                    sorted(map(str, found.get_check_constraints(name))),
                    sorted(map(_described, found.get_indexes(name))),
                    sorted(map(str, found.get_foreign_keys(name))),
                )
                for name in tables.metadata.tables
            }

    migrated = described()
    with store.write_transaction() as connection:
        tables.metadata.drop_all(connection)
        tables.metadata.create_all(connection)
    assert described() == migrated
    assert "one_row" in str(migrated["state"])
    assert "uq_topics_name_alive" in str(migrated["topics"])


def test_head_is_the_newest_migration() -> None:
    assert ScriptDirectory(str(schema.FOLDER)).get_heads() == [schema.HEAD]


def test_concurrent_migrations_generate_one_cluster_id(url: str) -> None:
    ids = in_processes("migrate", url, [[]] * 4)
    assert len(ids) == 4
    assert len(set(ids)) == 1


def test_migration_is_idempotent(store: Store) -> None:
    before = store.snapshot()
    store.migrate()
    assert store.is_migrated()
    assert store.snapshot() == before


def test_cluster_id_is_generated_from_the_given_random_source(url: str) -> None:
    store = open_store(url, random_bytes=lambda count: b"\xab" * count)
    store.migrate()
    assert store.snapshot().cluster_id == "ab" * 16
    store.close()


def test_database_without_tables_raises_schema_missing(url: str) -> None:
    store = open_store(url)
    assert not store.is_migrated()
    with pytest.raises(SchemaMissing, match="start a writer to migrate it"):
        store.snapshot()
    with pytest.raises(SchemaMissing, match="start a writer to migrate it"):
        store.take_over("http://writer")
    store.close()


def test_tables_of_an_older_version_raise_schema_missing(store: Store) -> None:
    sql(store, "UPDATE alembic_version SET version_num = '0001'")
    sql(store, "ALTER TABLE topics RENAME COLUMN retention_ms TO keeps_ms")
    with pytest.raises(SchemaMissing, match="start a writer to migrate it"):
        store.snapshot()


def test_invalid_statement_on_current_tables_is_not_reported_as_schema_missing(store: Store) -> None:
    with pytest.raises(MetadataError) as caught:
        sql(store, "SELECT no_such_function()")
    assert not isinstance(caught.value, SchemaMissing)


def test_tables_of_a_newer_version_are_not_changed(store: Store) -> None:
    sql(store, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaTooNew, match="9999"):
        store.is_migrated()
    with pytest.raises(SchemaTooNew, match="newer version"):
        store.migrate()


def test_second_row_of_state_is_rejected(store: Store) -> None:
    with pytest.raises(Exception, match="one_row"):
        sql(
            store,
            "INSERT INTO state SELECT 2, cluster_id, version, writer_epoch, writer_url, writer_beat, 0 FROM state",
        )
