"""The data source `flotilla`."""

from dataclasses import replace

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_flotilla import columns
from pyspark_flotilla.connection import resolve_url
from pyspark_flotilla.options import OptionInvalid, read_options, write_options
from pyspark_flotilla.readers import BatchReader, StreamReader
from pyspark_flotilla.writers import BatchWriter, StreamWriter, check_schema


class FlotillaSource(DataSource):
    """Topics as tables and streams."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return "flotilla"

    def schema(self) -> str:
        """Return the schema of rows."""
        include = str(self.options.get("includeHeaders", "false")).strip().lower() == "true"
        return columns.schema(include_headers=include)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make a reader for a batch query."""
        self._check_no_schema(schema)
        options = read_options(self.options, is_stream=False)
        return BatchReader(replace(options, connection=resolve_url(options.connection)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Make a reader for a stream."""
        self._check_no_schema(schema)
        options = read_options(self.options, is_stream=True)
        return StreamReader(replace(options, connection=resolve_url(options.connection)))

    def _check_no_schema(self, wanted: StructType) -> None:
        """Reject a schema given by the user; raises OptionInvalid."""
        ours = self.schema().replace("_ltz", "").replace(", ", ",").replace(": ", ":").replace(" ", ":")
        if wanted.simpleString() != f"struct<{ours}>":  # in the notation of Spark
            raise OptionInvalid(f"schema(…) is not supported; call select(…) on the columns {self.schema()}")

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Make a writer for a batch."""
        if overwrite:
            raise OptionInvalid("mode('overwrite') is not supported: use mode('append'), or delete the topic first")
        options = write_options(self.options, is_stream=False)
        check_schema(schema, options)
        return BatchWriter(replace(options, connection=resolve_url(options.connection)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        """Make a writer for a stream."""
        options = write_options(self.options, is_stream=True)
        check_schema(schema, options)
        return StreamWriter(replace(options, connection=resolve_url(options.connection)))
