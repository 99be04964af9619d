"""Exceptions. A message is one line that names the thing and the evidence."""


class DriveError(Exception):
    """A call has failed.

    >>> import kvdrive as kv
    >>> with kv.open() as drive:
    ...     drive[b"key"] = b"value"
    ...     drive.power_cut()
    ...     try:
    ...         drive[b"key"]
    ...     except kv.DriveError as error:
    ...         print(error)
    the drive is off
    """

    #: What the drive answered, as a number (status code type << 8 | status code); None if the drive did not answer.
    status: int | None
    #: The name of the status, as the NVMe specifications word it; None if the drive did not answer.
    name: str | None
    #: The place of the failed call in the list that ``store_many`` or ``retrieve_many`` was given; None elsewhere.
    index: int | None

    def __init__(self, message: str, status: int | None = None, name: str | None = None) -> None:
        super().__init__(message, status, name)
        self.status, self.name, self.index = status, name, None

    def __str__(self) -> str:
        return str(self.args[0])


class ConfigurationError(DriveError, ValueError):
    """No such drive or run can be had: the line begins with the setting to blame, and says what is allowed."""


class SizeError(DriveError, ValueError):
    """A key that is empty or longer than 16 bytes, or a value that no command can bring."""


class DriveOff(DriveError):
    """The drive has no power, or was closed."""
