"""Pages: files as a whole, and imports."""

PAGES: dict[str, tuple[str, str]] = {
    "P001": (
        "no such file",
        """
What: a file named on the command line, or by a tool, does not exist.
Why: a path is relative to the folder in which the command runs.
Example:
    parlay check jobs/70b
Instead:
    parlay check jobs/70b.par
""",
    ),
    "P002": (
        "not a regular file",
        """
What: the path names a folder, a pipe, a socket or a device.
Why: a job is described by one text; reading a pipe could wait for ever.
Example:
    parlay check jobs
Instead:
    parlay check jobs/70b.par
""",
    ),
    "P003": (
        "a file that cannot be read",
        """
What: the file exists, but the system does not let it be read; its reason is in the message.
Why: most often its permissions do not allow it.
Example:
    chmod 000 70b.par
    parlay check 70b.par
Instead:
    chmod 644 70b.par
    parlay check 70b.par
""",
    ),
    "P004": (
        "a file beyond 1 MiB",
        """
What: the file has more than 1,048,576 bytes. Its size is in the message; it was not read.
Why: a job takes some hundred lines. So large a file is something else, a checkpoint or a log.
Example:
    parlay check checkpoints/step_1000.pt
Instead:
    parlay check 70b.par
""",
    ),
    "P005": (
        "a file that is not UTF-8",
        """
What: a byte of the file belongs to no UTF-8 text; its offset and line are in the message.
Why: the file was saved in another encoding, Latin-1 or UTF-16, or it is not a text.
Example:
    iconv -t latin1 70b.par > old.par
    parlay check old.par
Instead:
    iconv -f latin1 -t utf-8 old.par > 70b.par
    parlay check 70b.par
""",
    ),
    "P006": (
        "a file that is not text",
        """
What: the file holds a zero byte; its offset is in the message.
Why: no text has one. The file is an archive, a checkpoint or a program.
Example:
    parlay check model.safetensors
Instead:
    parlay check 70b.par
""",
    ),
    "P007": (
        "a file without statements",
        """
What: the file is empty, or holds nothing but comments.
Why: there is nothing to check; most often the text was not saved.
Example:
    # the job comes here
Instead:
    model from "llama3-70b"
""",
    ),
    "P008": (
        "a file outside the project",
        """
What: the file lies outside the project's folder, links followed.
Why: what a job is made of stays in one folder, so that it can be copied and checked elsewhere.
Example:
    ln -s /etc/hosts jobs/70b.par
    parlay check jobs/70b.par
Instead:
    parlay check jobs/70b.par
""",
    ),
    "P070": (
        "too many mistakes",
        """
What: the syntax has more than 100 mistakes; the first hundred are told.
Why: so many come from one cause: the file is of another language, or was cut or merged badly.
Example:
    parlay check train.py
Instead:
    parlay check train.par
""",
    ),
    "P101": (
        "an import that leaves the project",
        """
What: the path of an `import` leads out of the project's folder, or is absolute.
Why: what a job is made of stays in one folder, so that it can be copied and checked elsewhere.
Example:
    import "../../common/cluster.par"
Instead:
    import "common/cluster.par"
""",
    ),
    "P102": (
        "imports that go round",
        """
What: a file imports itself, directly or through others; the ring is in the message.
Why: each would need the other's values before its own.
Example:
    # a.par
    import "b.par"
    # b.par
    import "a.par"
Instead:
    # a.par
    import "c.par"
    # b.par
    import "c.par"
""",
    ),
    "P103": (
        "too many imports",
        """
What: a job is made of more files than are read.
Why: a job takes a few files; hundreds point at generated text that is better one file.
Example:
    import "part001.par"
    import "part002.par"
Instead:
    import "parts.par"
""",
    ),
    "P104": (
        "an imported file that cannot be read",
        """
What: the file that an `import` names is missing, or cannot be read; the reason is in the message.
Why: the path is relative to the file that holds the `import`, not to the working folder.
Example:
    # jobs/70b.par
    import "jobs/cluster.par"
Instead:
    # jobs/70b.par
    import "cluster.par"
""",
    ),
}
