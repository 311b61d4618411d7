"""What Spark asks for when it hears `flotilla`."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_flotilla import columns
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
        include = str(self.options.get("includeHeaders", "false")).lower() == "true"
        return columns.schema(include_headers=include)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - it is ours
        """Read what is there."""
        return BatchReader(read_options(self.options, is_stream=False))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: ARG002, N802 - Spark's name
        """Read what comes."""
        return StreamReader(read_options(self.options, is_stream=True))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Append rows."""
        if overwrite:
            raise OptionInvalid("a log is never overwritten: write with mode('append'), or delete the topic before")
        options = write_options(self.options)
        check(schema, options)
        return BatchWriter(options)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: ARG002, N802
        """Append rows of micro-batches."""
        options = write_options(self.options)
        check(schema, options)
        return StreamWriter(options)
