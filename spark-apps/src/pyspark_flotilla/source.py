"""What Spark asks for when it hears `flotilla`."""

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
from pyspark_flotilla.connecting import locate
from pyspark_flotilla.options import OptionInvalid, read_options, write_options
from pyspark_flotilla.reading import BatchReader, StreamReader
from pyspark_flotilla.writing import BatchWriter, StreamWriter, check


class FlotillaSource(DataSource):
    """Topics as tables."""

    @classmethod
    def name(cls) -> str:
        """What a format is called."""
        return "flotilla"

    def schema(self) -> str:
        """Say what rows have."""
        include = str(self.options.get("includeHeaders", "false")).strip().lower() == "true"
        return columns.schema(include_headers=include)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Read what is there."""
        self._check(schema)
        options = read_options(self.options, is_stream=False)
        return BatchReader(replace(options, where=locate(options.where)))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Read what comes."""
        self._check(schema)
        options = read_options(self.options, is_stream=True)
        return StreamReader(replace(options, where=locate(options.where)))

    def _check(self, wanted: StructType) -> None:
        """See that nobody wants other columns than there are; raises OptionInvalid."""
        ours = self.schema().replace("_ltz", "").replace(", ", ",").replace(": ", ":").replace(" ", ":")
        if wanted.simpleString() != f"struct<{ours}>":  # as Spark writes types down
            raise OptionInvalid(
                f"the columns are given: leave schema(…) out, and select what you want of {self.schema()}"
            )

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Append rows."""
        if overwrite:
            raise OptionInvalid("a log is never overwritten: write with mode('append'), or delete the topic before")
        options = write_options(self.options, is_stream=False)
        check(schema, options)
        return BatchWriter(replace(options, where=locate(options.where)))

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        """Append rows of micro-batches."""
        options = write_options(self.options, is_stream=True)
        check(schema, options)
        return StreamWriter(replace(options, where=locate(options.where)))
