"""SQL databases through SQLAlchemy: one table, upserted by key."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Engine,
    Float,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    create_engine,
    delete,
    event,
    func,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError, SQLAlchemyError

from crawler.errors import ConfigError, StorageError
from crawler.items.record import Record
from crawler.storage.contract import PageCommit, Refusal

BUSY_SECONDS = 30
READ_BATCH = 1000
TABLE = "items"


def storage(target: str, writer: str) -> "SqlStorage":
    """The backend of an SQLAlchemy URL; ``?table=NAME`` names another table than ``items``."""
    return SqlStorage(target)


class SqlStorage:
    """Records in one table; several processes may write to it. SQLite runs in write-ahead mode and syncs each
    batch to disk.
    """

    def __init__(self, target: str) -> None:
        try:
            url = make_url(target)
        except ArgumentError:
            raise ConfigError("CRAWLER_STORAGE is no SQLAlchemy URL; write it as in sqlite:///items.db") from None
        name = url.query.get("table", TABLE)
        self._url = url.difference_update_query(["table"])
        if self._url.get_backend_name() not in {"sqlite", "postgresql"}:
            raise ConfigError(
                f"CRAWLER_STORAGE has the database {self._url.get_backend_name()!r}; known are sqlite and postgresql"
            )
        self._table = _table(str(name))
        self._engine: Engine | None = None

    def open(self) -> None:
        """Connects, makes the table, and proves with a transaction that it can be written.

        Raises:
            ConfigError: the driver is not installed.
            StorageError: the database cannot be reached or written.
        """
        if self._url.get_backend_name() == "sqlite" and self._url.database not in {None, "", ":memory:"}:
            Path(str(self._url.database)).parent.mkdir(parents=True, exist_ok=True)
        try:
            engine = create_engine(self._url, pool_pre_ping=True)
        except (ImportError, NoSuchModuleError) as error:
            raise ConfigError(f"CRAWLER_STORAGE needs a driver that is not installed ({error}); install it") from error
        if engine.dialect.name == "sqlite":
            _prepare_sqlite(engine)
        self._engine = engine
        try:
            self._table.metadata.create_all(engine, checkfirst=True)
            with engine.begin() as connection:
                connection.execute(delete(self._table).where(self._table.c.key == ""))
        except SQLAlchemyError as error:
            # Several workers may make the table at the same moment; the second finds it made.
            self._check_writable(engine, error)

    def _check_writable(self, engine: Engine, first: SQLAlchemyError) -> None:
        try:
            with engine.begin() as connection:
                connection.execute(delete(self._table).where(self._table.c.key == ""))
        except SQLAlchemyError:
            raise StorageError(
                f"{self._shown} cannot be written: {_cause(first)}; check that it is there and permitted"
            ) from first

    @property
    def _shown(self) -> str:
        return self._url.render_as_string(hide_password=True)

    @property
    def _opened(self) -> Engine:
        if self._engine is None:
            raise StorageError(f"{self._shown} is not open; call open() first")
        return self._engine

    def write(self, records: Sequence[Record]) -> list[Refusal]:
        """Upserts records in one transaction; where a row is refused, the others go in without it."""
        newest: dict[str, Record] = {}
        for record in records:
            if record.key not in newest or newest[record.key].fetch <= record.fetch:
                newest[record.key] = record
        return self._write(list(newest.values()))

    def _write(self, records: Sequence[Record]) -> list[Refusal]:
        try:
            with self._opened.begin() as connection:
                self._upsert(connection, records)
        except OperationalError as error:
            raise StorageError(f"{self._shown}: {_cause(error)}") from error
        except DBAPIError as error:
            if error.connection_invalidated:
                raise StorageError(f"{self._shown}: {_cause(error)}") from error
            return self._split(records, error)
        except (ValueError, OverflowError, UnicodeError) as error:
            return self._split(records, error)
        return []

    def _split(self, records: Sequence[Record], error: Exception) -> list[Refusal]:
        if len(records) == 1:
            return [Refusal(records[0], _cause(error))]
        half = len(records) // 2
        return self._write(records[:half]) + self._write(records[half:])

    def _upsert(self, connection: Connection, records: Sequence[Record]) -> None:
        insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
        statement: Any = insert(self._table)
        changed = {column.name: statement.excluded[column.name] for column in self._table.c if column.name != "key"}
        connection.execute(
            statement.on_conflict_do_update(
                index_elements=[self._table.c.key],
                set_=changed,
                where=statement.excluded.fetch >= self._table.c.fetch,
            ),
            [_row(record) for record in records],
        )

    def commit(self, pages: Sequence[PageCommit]) -> None:
        """Removes the rows of older fetches of the pages."""
        table = self._table
        try:
            with self._opened.begin() as connection:
                for page in pages:
                    connection.execute(delete(table).where(table.c.page == page.page, table.c.fetch < page.fetch))
        except SQLAlchemyError as error:
            raise StorageError(f"{self._shown}: {_cause(error)}") from error

    def count(self) -> int:
        """Rows in the table."""
        with self._reading() as connection:
            return int(connection.execute(select(func.count()).select_from(self._table)).scalar_one())

    def records(self) -> Iterator[Record]:
        """Every record, by key."""
        with self._reading() as connection:
            streamed = connection.execution_options(stream_results=True, yield_per=READ_BATCH)
            for row in streamed.execute(select(self._table).order_by(self._table.c.key)):
                yield Record(**{**row._mapping, "data": json.loads(row.data)})

    def _reading(self) -> Connection:
        # Without a transaction: an export must not hold the lock that writers need.
        return self._opened.connect().execution_options(isolation_level="AUTOCOMMIT")

    def close(self) -> None:
        """Closes the connections."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None


def _table(name: str) -> Table:
    return Table(
        name,
        MetaData(),
        Column("key", String(64), primary_key=True),
        Column("crawl", Text, nullable=False),
        Column("spider", Text, nullable=False),
        Column("page", String(64), nullable=False, index=True),
        Column("fetch", BigInteger, nullable=False),
        Column("position", Integer, nullable=False),
        Column("url", Text, nullable=False),
        Column("type", Text, nullable=False),
        Column("data", Text, nullable=False),
        Column("stored_at", Float, nullable=False),
    )


def _row(record: Record) -> dict[str, Any]:
    return {
        "key": record.key,
        "crawl": record.crawl,
        "spider": record.spider,
        "page": record.page,
        "fetch": record.fetch,
        "position": record.position,
        "url": record.url,
        "type": record.type,
        # Escaped: NUL and lone surrogates reach every database unchanged.
        "data": json.dumps(record.data),
        "stored_at": record.stored_at,
    }


def _prepare_sqlite(engine: Engine) -> None:
    @event.listens_for(engine, "connect")
    def connected(connection: Any, _: Any) -> None:
        connection.isolation_level = None
        cursor = connection.cursor()
        cursor.execute(f"PRAGMA busy_timeout = {BUSY_SECONDS * 1000}")
        cursor.execute("PRAGMA journal_mode = WAL")
        cursor.execute("PRAGMA synchronous = FULL")
        cursor.close()

    @event.listens_for(engine, "begin")
    def begun(connection: Connection) -> None:
        # Takes the write lock at once: two that read first and then write would deadlock, and one of them fail
        # without waiting.
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _cause(error: BaseException) -> str:
    original = getattr(error, "orig", None) or error
    return f"{type(original).__name__}: {original}".splitlines()[0]
