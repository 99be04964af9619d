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

    #: The status that the drive answered, as a number (status code type << 8 | status code); None if the drive did not answer.
    status: int | None
    #: The name of the status, as the NVMe specifications word it; None if the drive did not answer.
    name: str | None
    #: The call that was refused: ``store``, ``get``, ...; None if the error is of no call on a pair.
    call: str | None
    #: The key of that call.
    key: bytes | None
    #: The part of a configuration that is wrong: a key, an option, a file, an address; None elsewhere.
    setting: str | None
    #: The allowed values of a key of the configuration, in words; None elsewhere.
    allowed: str | None
    #: The place of the failed call in the list that ``store_many`` or another call on a list was given; None elsewhere.
    index: int | None

    def __init__(
        self,
        message: str,
        status: int | None = None,
        name: str | None = None,
        call: str | None = None,
        key: bytes | None = None,
        setting: str | None = None,
        allowed: str | None = None,
    ) -> None:
        super().__init__(message, status, name, call, key, setting, allowed)
        self.status, self.name, self.call, self.key = status, name, call, key
        self.setting, self.allowed, self.index = setting, allowed, None

    def __str__(self) -> str:
        return str(self.args[0])


class ConfigurationError(DriveError, ValueError):
    """Settings do not make a drive or a run: the line begins with the setting at fault, and says what is allowed.

    >>> import kvdrive as kv
    >>> try:
    ...     kv.open(**{"flash.channels": 0})
    ... except kv.ConfigurationError as error:
    ...     print(error.setting, "may be", error.allowed)
    flash.channels may be 1 to 256
    """


class SizeError(DriveError, ValueError):
    """A key that is empty or longer than 65 535 bytes, a value that no command can carry, or one that is larger than the
    buffer of its caller.
    """


class DriveOff(DriveError):
    """The drive has no power, or was closed."""
