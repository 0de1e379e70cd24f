"""The formats of Spark as a session gets them, and what Spark asks of them, without Spark."""

from types import SimpleNamespace

from pyspark.sql import types

from stompring.pipeline import register

FORMATS = {}

register(
    SimpleNamespace(dataSource=SimpleNamespace(register=lambda each: FORMATS.update({each.name(): each})))
)

KINDS = {
    "STRING": types.StringType(),
    "BINARY": types.BinaryType(),
    "BIGINT": types.LongType(),
    "INT": types.IntegerType(),
    "BOOLEAN": types.BooleanType(),
    "TIMESTAMP": types.TimestampType(),
    "MAP<STRING,STRING>": types.MapType(types.StringType(), types.StringType()),
}


def asked(form, call, *arguments, **options):
    """What a format gives for reading or writing, with the schema that it says itself."""
    found = FORMATS[form]({name: str(value) for name, value in options.items()})
    columns = [column.replace("`", "").split(" ", 1) for column in found.schema().split(", ")]
    schema = types.StructType([types.StructField(name, KINDS[kind]) for name, kind in columns])
    return getattr(found, call)(schema, *arguments)


def schema(**options):
    """The columns of the files of a broker."""
    return FORMATS["stompring"]({"path": "/data", **options}).schema()


def reader(path, **options):
    """A batch query on the files of a broker."""
    return asked("stompring", "reader", path=path, **options)


def stream(path, **options):
    """A stream of them."""
    return asked("stompring", "streamReader", path=path, **options)


def rows_of(source, parts):
    """The rows of some partitions."""
    found = [batch for part in parts for batch in source.read(part)]
    for batch in found:
        batch.validate(full=True)
    return [row for batch in found for row in batch.to_pylist()]


def table(path, **options):
    """All rows of a batch query."""
    source = reader(path, **options)
    return rows_of(source, source.partitions())
