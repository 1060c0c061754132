"""SQL databases through SQLAlchemy: one table, upserted by key."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
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
    bindparam,
    create_engine,
    delete,
    event,
    func,
    select,
)
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Connection, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DataError,
    DBAPIError,
    IntegrityError,
    NoSuchModuleError,
    SQLAlchemyError,
    StatementError,
)

from crawler.errors import ConfigError, StorageError
from crawler.items.record import Record
from crawler.storage.contract import PageCommit, Refusal

BUSY_SECONDS = 30
READ_BATCH = 1000
TABLE = "items"
AUTOCOMMIT = "AUTOCOMMIT"
KNOWN = ("postgresql", "sqlite")


def storage(target: str, writer: str) -> "SqlStorage":
    """The backend of an SQLAlchemy URL; ``?table=NAME`` names another table than ``items``."""
    return SqlStorage(target)


class SqlStorage:
    """Records in one table, and the pages that were fetched more than once in a second one, ``<table>_pages``.

    Several processes may write at once. SQLite runs in write-ahead mode and syncs each batch to disk.
    """

    def __init__(self, target: str) -> None:
        try:
            url = make_url(target)
        except ArgumentError:
            raise ConfigError("CRAWLER_STORAGE is no SQLAlchemy URL; write it as in sqlite:///items.db") from None
        name = url.query.get("table", TABLE)
        self._url = url.difference_update_query(["table"])
        if self._url.get_backend_name() not in KNOWN:
            raise ConfigError(
                f"CRAWLER_STORAGE has the database {self._url.get_backend_name()!r}; known are {' and '.join(KNOWN)}"
            )
        self._table, self._pages = _tables(str(name))
        self._engine: Engine | None = None

    def open(self) -> None:
        """Connects, makes the tables, and proves with a transaction that they can be written.

        Raises:
            ConfigError: the driver is not installed.
            StorageError: the database cannot be reached or written.
        """
        self._make_folder()
        try:
            engine = create_engine(self._url, pool_pre_ping=True)
        except (ImportError, NoSuchModuleError) as error:
            raise ConfigError(f"CRAWLER_STORAGE needs a driver that is not installed ({error}); install it") from error
        if engine.dialect.name == "sqlite":
            _prepare_sqlite(engine)
        try:
            self._prove(engine)
        except StorageError:
            engine.dispose()
            raise
        self._engine = engine

    def _make_folder(self) -> None:
        if self._url.get_backend_name() != "sqlite" or self._url.database in {None, "", ":memory:"}:
            return
        folder = Path(str(self._url.database)).parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"{folder} cannot hold a database: {error}; check that it is a folder and permitted"
            ) from error

    def _prove(self, engine: Engine) -> None:
        made: SQLAlchemyError | None = None
        try:
            self._table.metadata.create_all(engine, checkfirst=True)
        except SQLAlchemyError as error:
            # Several workers may make the tables at the same moment; the second finds them made.
            made = error
        try:
            with engine.begin() as connection:
                for table in (self._table, self._pages):
                    connection.execute(delete(table).where(table.primary_key.columns[0] == ""))
        except SQLAlchemyError as error:
            raise StorageError(
                f"{self._shown} cannot be written: {_cause(made or error)}; check that it is there and permitted"
            ) from error

    @property
    def _shown(self) -> str:
        # Drivers take passwords in the query too.
        return self._url.set(query={}).render_as_string(hide_password=True)

    @property
    def _opened(self) -> Engine:
        if self._engine is None:
            raise StorageError(f"{self._shown} is not open; call open() first")
        return self._engine

    def write(self, records: Sequence[Record]) -> list[Refusal]:
        """Upserts records in one transaction; where a row is refused, the others go in without it."""
        return [refusal for once in _each_key_once(records) for refusal in self._write(once)]

    def _write(self, records: Sequence[Record]) -> list[Refusal]:
        try:
            with self._opened.begin() as connection:
                complete = self._complete(connection, {record.page for record in records})
                current = [record for record in records if record.fetch >= complete.get(record.page, 0)]
                if current:
                    self._upsert(connection, current)
        except (ValueError, OverflowError, UnicodeError) as error:
            return self._split(records, error)
        except SQLAlchemyError as error:
            if _blames_a_row(error):
                return self._split(records, error)
            raise StorageError(f"{self._shown}: {_cause(error)}") from error
        return []

    def _split(self, records: Sequence[Record], error: Exception) -> list[Refusal]:
        if len(records) == 1:
            return [Refusal(records[0], _cause(error))]
        half = len(records) // 2
        return self._write(records[:half]) + self._write(records[half:])

    def _complete(self, connection: Connection, pages: Iterable[str]) -> dict[str, int]:
        table, asked = self._pages, sorted(pages)
        complete: dict[str, int] = {}
        for at in range(0, len(asked), READ_BATCH):
            some = select(table.c.page, table.c.fetch).where(table.c.page.in_(asked[at : at + READ_BATCH]))
            complete.update((page, fetch) for page, fetch in connection.execute(some))
        return complete

    def _upsert(self, connection: Connection, records: Sequence[Record]) -> None:
        connection.execute(_upserting(connection, self._table), [_row(record) for record in records])

    def commit(self, pages: Sequence[PageCommit]) -> None:
        """Removes the rows of older fetches of the pages, and remembers the pages to keep late ones out."""
        table = self._table
        old = delete(table).where(table.c.page == bindparam("of_page"), table.c.fetch < bindparam("of_fetch"))
        latest: dict[str, int] = {}
        for page in pages:
            latest[page.page] = max(page.fetch, latest.get(page.page, 0))
        rows = [{"page": page, "fetch": fetch} for page, fetch in latest.items()]
        try:
            with self._opened.begin() as connection:
                connection.execute(_upserting(connection, self._pages), rows)
                connection.execute(old, [{"of_page": row["page"], "of_fetch": row["fetch"]} for row in rows])
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

    @contextmanager
    def _reading(self) -> Iterator[Connection]:
        # Without a transaction: an export must not hold the lock that writers need.
        try:
            with self._opened.connect().execution_options(isolation_level=AUTOCOMMIT) as connection:
                yield connection
        except SQLAlchemyError as error:
            raise StorageError(f"{self._shown} cannot be read: {_cause(error)}") from error

    def close(self) -> None:
        """Closes the connections."""
        if self._engine is not None:
            self._engine.dispose()
            self._engine = None


def _each_key_once(records: Sequence[Record]) -> list[list[Record]]:
    """The records in as few lists as hold each key once, in their order.

    One statement cannot upsert a row twice; and where the later of two is refused, the earlier must be there.
    """
    lists: list[list[Record]] = []
    seen: dict[str, int] = {}
    for record in records:
        at = seen.get(record.key, 0)
        seen[record.key] = at + 1
        if at == len(lists):
            lists.append([])
        lists[at].append(record)
    return lists


def _blames_a_row(error: SQLAlchemyError) -> bool:
    """Whether the error is of a value; of a lost connection, a full disk or a damaged file it is not."""
    if isinstance(error, DBAPIError):
        return isinstance(error, (IntegrityError, DataError)) and not error.connection_invalidated
    return isinstance(error, StatementError)


def _upserting(connection: Connection, table: Table) -> Any:
    """Insert, or change the row of the same primary key unless it has a later fetch."""
    insert = postgresql.insert if connection.dialect.name == "postgresql" else sqlite.insert
    statement: Any = insert(table)
    changed = {column.name: statement.excluded[column.name] for column in table.c if not column.primary_key}
    return statement.on_conflict_do_update(
        index_elements=list(table.primary_key.columns),
        set_=changed,
        where=statement.excluded.fetch >= table.c.fetch,
    )


def _tables(name: str) -> tuple[Table, Table]:
    metadata = MetaData()
    items = Table(
        name,
        metadata,
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
    pages = Table(
        f"{name}_pages",
        metadata,
        Column("page", String(64), primary_key=True),
        Column("fetch", BigInteger, nullable=False),
    )
    return items, pages


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
        # SQLAlchemy tells of a beginning in autocommit too, where nothing begins.
        if connection.get_execution_options().get("isolation_level") == AUTOCOMMIT:
            return
        # Takes the write lock at once: two that read first and then write would deadlock, and one of them fail
        # without waiting.
        connection.exec_driver_sql("BEGIN IMMEDIATE")


def _cause(error: BaseException) -> str:
    original = getattr(error, "orig", None) or error
    return f"{type(original).__name__}: {original}".splitlines()[0]
