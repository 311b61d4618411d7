"""The tables: made by migrations, by anybody, at any time."""

from collections.abc import Mapping
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import inspect

from flotilla_manager.metadata import SchemaMissing, SchemaTooNew, Store, open_store, schema, tables
from support.metadata import in_processes, sql


def test_the_migrations_make_exactly_the_tables_that_the_code_uses(store: Store) -> None:
    with store.reading() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, tables.metadata) == []


def _described(index: Mapping[str, Any]) -> str:
    options = {name: str(value) for name, value in index.get("dialect_options", {}).items()}
    return str({**index, "dialect_options": options})


def test_the_migrations_make_the_checks_and_indices_too(store: Store) -> None:
    """What Alembic does not compare: the same as if the tables were made straight from the code."""

    def described() -> dict[str, object]:
        with store.reading() as connection:
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
    with store.writing() as connection:
        tables.metadata.drop_all(connection)
        tables.metadata.create_all(connection)
    assert described() == migrated
    assert "one_row" in str(migrated["state"])
    assert "uq_topics_name_alive" in str(migrated["topics"])


def test_the_newest_migration_is_the_one_that_the_code_asks_for() -> None:
    assert ScriptDirectory(str(schema.FOLDER)).get_heads() == [schema.HEAD]


def test_four_processes_that_migrate_at_once_make_one_cluster(url: str) -> None:
    ids = in_processes("migrate", url, [[]] * 4)
    assert len(ids) == 4
    assert len(set(ids)) == 1


def test_migrating_again_changes_nothing(store: Store) -> None:
    before = store.snapshot()
    store.migrate()
    assert store.is_migrated()
    assert store.snapshot() == before


def test_a_clusters_id_comes_from_the_random_source_that_was_given(url: str) -> None:
    store = open_store(url, random_bytes=lambda count: b"\xab" * count)
    store.migrate()
    assert store.snapshot().cluster_id == "ab" * 16
    store.close()


def test_a_database_without_tables_is_recognised(url: str) -> None:
    store = open_store(url)
    assert not store.is_migrated()
    with pytest.raises(SchemaMissing, match="migrate it first"):
        store.snapshot()
    with pytest.raises(SchemaMissing, match="migrate it first"):
        store.take_over("http://writer")
    store.close()


def test_tables_of_a_newer_version_are_left_alone(store: Store) -> None:
    sql(store, "UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(SchemaTooNew, match="9999"):
        store.is_migrated()
    with pytest.raises(SchemaTooNew, match="newer version"):
        store.migrate()


def test_there_is_one_row_of_state_and_never_a_second(store: Store) -> None:
    with pytest.raises(Exception, match="one_row"):
        sql(
            store,
            "INSERT INTO state SELECT 2, cluster_id, version, writer_epoch, writer_url, writer_beat, 0 FROM state",
        )
