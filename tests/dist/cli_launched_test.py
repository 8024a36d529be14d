"""Commands whose ranks are processes that another program has started: one job, said by rank 0 alone."""

import itertools
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import cli_tool

JOBS = itertools.count()
SMALL = ["--m", "24", "--n", "16", "--k", "8"]


def open_mpi(rank, size, job):
    return {
        "OMPI_COMM_WORLD_RANK": rank,
        "OMPI_COMM_WORLD_SIZE": size,
        "OMPI_COMM_WORLD_LOCAL_RANK": rank,
        "OMPI_COMM_WORLD_LOCAL_SIZE": size,
        "PMIX_NAMESPACE": job,
    }


def mpich(rank, size, job):
    """The ranks know each other by their parent: these tests run one such launch at a time."""
    return {"PMI_RANK": rank, "PMI_SIZE": size, "MPI_LOCALRANKID": rank, "MPI_LOCALNRANKS": size}


def torchrun(rank, size, job):
    return {
        "RANK": rank,
        "WORLD_SIZE": size,
        "LOCAL_RANK": rank,
        "LOCAL_WORLD_SIZE": size,
        "TORCHELASTIC_RUN_ID": job,
        "TORCHELASTIC_RESTART_COUNT": 0,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": 29500,
    }


def slurm(rank, size, job):
    return {
        "SLURM_PROCID": rank,
        "SLURM_NTASKS": size,
        "SLURM_LOCALID": rank,
        "SLURM_JOB_ID": job,
        "SLURM_STEP_ID": 0,
        "SLURM_TASKS_PER_NODE": size,
    }


LAUNCHERS = {"Open MPI": open_mpi, "MPICH": mpich, "torchrun": torchrun, "Slurm": slurm}


class Launched(unittest.TestCase):
    def setUp(self):
        # Short: a socket's path has a limit.
        self.temporary = tempfile.TemporaryDirectory(prefix="launched_")
        self.addCleanup(self.temporary.cleanup)
        self.folder = self.temporary.name
        self.meeting = os.path.join(self.folder, "tmp")
        os.mkdir(self.meeting)

    def launch(self, arguments, size, launcher=open_mpi, job=None, ranks=None, env=None):
        """Starts the processes; those of `ranks` only, if given."""
        job = job or f"{os.getpid()}{next(JOBS)}"
        processes = []
        for rank in range(size) if ranks is None else ranks:
            own = arguments(rank) if callable(arguments) else arguments
            variables = {name: str(value) for name, value in launcher(rank, size, job).items()}
            variables = {**variables, "TMPDIR": self.meeting, **(env or {})}
            processes.append(cli_tool.start(*own, env=variables))
        for process in processes:
            self.addCleanup(self.end, process)
        return processes

    @staticmethod
    def end(process):
        if process.poll() is None:
            process.kill()
        process.communicate()

    def wait(self, processes):
        """[(exit code, stdout, stderr)], with nothing left in the temporary directory."""
        ended = [(*process.communicate(timeout=100), process) for process in processes]
        self.assertEqual(os.listdir(self.meeting), [])
        return [(process.returncode, out, err) for out, err, process in ended]

    def succeed(self, *arguments, **how):
        """What rank 0 prints."""
        ended = self.wait(self.launch(*arguments, **how))
        for code, _, err in ended:
            self.assertEqual((code, err), (0, ""))
        for _, out, _ in ended[1:]:
            self.assertEqual(out, "")
        return ended[0][1]

    def all_fail(self, exit_code, *arguments, **how):
        """What rank 0 says on stderr."""
        return self.refused(exit_code, self.launch(*arguments, **how))

    def refused(self, exit_code, processes):
        ended = self.wait(processes)
        self.assertEqual([code for code, _, _ in ended], [exit_code] * len(ended), ended)
        for _, out, err in ended[1:]:
            self.assertEqual((out, err), ("", ""))
        self.assertEqual(len(ended[0][2].splitlines()), 1, ended[0][2])
        return ended[0][2]

    # ---- what works

    def test_run_by_each_launcher_equals_that_of_own_ranks(self):
        a, b = os.path.join(self.folder, "a.npy"), os.path.join(self.folder, "b.npy")
        cli_tool.write_npy(a, [7, 11], cli_tool.pseudo_random(77, 1))
        cli_tool.write_npy(b, [11, 13], cli_tool.pseudo_random(143, 2))

        def words(out):
            return ["run", "all_gather_matmul", "--a", a, "--b", b, "--out", os.path.join(self.folder, out)]

        done = cli_tool.run(*words("own.npy"), "--ranks", 3)
        self.assertEqual(done.returncode, 0, done.stderr)
        right = pathlib.Path(self.folder, "own.npy").read_bytes()
        for name, launcher in LAUNCHERS.items():
            with self.subTest(launcher=name):
                text = self.succeed(words("out.npy"), 3, launcher=launcher)
                self.assertIn(f"3 ranks of {name}", text.splitlines()[0])
                self.assertEqual(pathlib.Path(self.folder, "out.npy").read_bytes(), right)
                os.remove(os.path.join(self.folder, "out.npy"))

    def test_demo(self):
        text = self.succeed(["demo", "--seconds", "0.5"], 2)
        self.assertIn("2 ranks of Open MPI", text.splitlines()[0])

    def test_a_launch_of_one_process(self):
        text = self.succeed(["bench", "all_gather_matmul", *SMALL], 1)
        self.assertIn("1 rank of Open MPI", text)

    def test_check_is_of_the_launched_ranks(self):
        text = self.succeed(["check", "all_gather_matmul", "--dtype", "f32"], 2)
        self.assertIn("ranks 2: ", text)
        self.assertEqual(len(re.findall(r"^ranks ", text, re.MULTILINE)), 1, text)

    def test_several_jobs_of_one_command(self):
        """Each row of bench and tune is a job of its own."""
        algorithms = ["--algorithm", "serial,pipelined"]
        text = self.succeed(["bench", "matmul_reduce_scatter", *SMALL, "--dtype", "f32,bf16", *algorithms], 2)
        rows = re.findall(r"^ *matmul_reduce_scatter .* 2 +(?:serial|pipelined) ", text, re.MULTILINE)
        self.assertEqual(len(rows), 4, text)
        folder = os.path.join(self.folder, "tune")
        text = self.succeed(["tune", "all_gather_matmul", *SMALL, "--dtype", "f32,bf16", "--folder", folder], 2)
        self.assertIn("2 rows taken in", text)

    def test_the_number_of_ranks_may_be_said(self):
        self.succeed(["bench", "all_gather_matmul", *SMALL, "--ranks", "2"], 2)

    def test_trace(self):
        out = os.path.join(self.folder, "trace")
        self.succeed(["trace", "bench", "all_gather_matmul", *SMALL, "--out", out], 2)
        self.assertTrue(os.path.exists(os.path.join(out, "trace.json")))

    def test_rank_0_alone_does_what_starts_no_ranks(self):
        for words in (["--version"], ["--help"], ["demo", "--help"], ["program", "lower", "--s", "4", "--m", "8", "--n",
                                                                      "8", "--k", "8", "--ranks", "2"]):
            with self.subTest(words=words):
                self.assertNotEqual(self.succeed(words, 2), "")

    def test_a_launcher_that_is_ignored(self):
        (done,) = self.wait(self.launch(["bench", "all_gather_matmul", *SMALL, "--ranks", "2"], 4, ranks=[3],
                                        env={"TANDEM_LAUNCHER": "none"}))
        self.assertEqual((done[0], done[2]), (0, ""))
        self.assertNotIn("Open MPI", done[1])

    def test_two_launches_at_a_time(self):
        both = [self.launch(["bench", "all_gather_matmul", *SMALL], 2, launcher=torchrun) for _ in range(2)]
        for processes in both:
            for code, _, err in [(p.wait(100), *p.communicate()) for p in processes]:
                self.assertEqual((code, err), (0, ""))

    def test_what_a_killed_launch_of_the_same_name_left(self):
        (first,) = self.launch(["bench", "all_gather_matmul", *SMALL], 2, job="same", ranks=[0])
        self.await_meeting()
        first.kill()
        first.communicate()
        self.assertNotEqual(os.listdir(self.meeting), [])
        self.succeed(["bench", "all_gather_matmul", *SMALL], 2, job="same")

    def test_what_a_killed_launch_of_another_name_left(self):
        (first,) = self.launch(["bench", "all_gather_matmul", *SMALL], 2, job="before", ranks=[0])
        self.await_meeting()
        first.kill()
        first.communicate()
        self.succeed(["bench", "all_gather_matmul", *SMALL], 2)

    def await_meeting(self):
        """Rank 0 has told its address."""
        while not any(pathlib.Path(self.meeting).glob("tandem-launch-*/address")):
            time.sleep(0.01)

    def test_only_this_user_can_read_the_address(self):
        self.launch(["bench", "all_gather_matmul", *SMALL], 2, ranks=[0])
        self.await_meeting()
        (address,) = pathlib.Path(self.meeting).glob("tandem-launch-*/address")
        self.assertEqual(address.stat().st_mode & 0o777, 0o600)
        self.assertEqual(address.parent.stat().st_mode & 0o777, 0o700)

    # ---- what is refused

    def test_another_number_of_ranks(self):
        text = self.all_fail(2, ["demo", "--ranks", "3"], 2)
        self.assertIn("--ranks 3: Open MPI has started 2 ranks", text)
        text = self.all_fail(2, ["check", "--ranks", "1,2"], 2)
        self.assertIn("--ranks 1: Open MPI has started 2 ranks", text)

    def test_a_wrong_command_line(self):
        self.assertIn("--nonsense", self.all_fail(2, ["demo", "--nonsense"], 2))
        self.assertIn("unknown command", self.all_fail(2, ["nonsense"], 2))

    def test_variables_that_are_no_numbers(self):
        (process,) = self.launch(["demo"], 2, ranks=[1], env={"OMPI_COMM_WORLD_SIZE": "two"})
        ((code, out, err),) = self.wait([process])
        self.assertEqual((code, out), (2, ""))
        self.assertIn("OMPI_COMM_WORLD_SIZE='two'", err)

    def test_several_hosts(self):
        (process,) = self.launch(["tune"], 4, ranks=[0], env={"OMPI_COMM_WORLD_LOCAL_SIZE": "2"})
        ((code, _, err),) = self.wait([process])
        self.assertEqual(code, 4, err)
        self.assertIn("4 ranks, 2 of them on this host", err)

    def test_ranks_with_different_arguments(self):
        def words(rank):
            return ["bench", "all_gather_matmul", *SMALL, "--iterations", str(5 + rank)]

        self.assertIn("rank 1: Mismatch: started as", self.all_fail(1, words, 2))

    def test_a_rank_that_another_launch_of_the_same_name_has(self):
        words = ["bench", "all_gather_matmul", *SMALL]
        first = self.launch(words, 3, job="same", ranks=[0, 1], env={"TANDEM_RENDEZVOUS_TIMEOUT_MS": "5000"})
        self.await_meeting()
        (second,) = self.launch(words, 3, job="same", ranks=[1])
        # One of the two has the seat, whichever came first.
        first_ended, second_ended = [(p.communicate(timeout=100)[1], p.returncode) for p in (first[1], second)]
        self.assertEqual((first_ended[1], second_ended[1]), (1, 1))
        text = first_ended[0] + second_ended[0]
        self.assertIn("rank 1 of job 'Open MPI: PMIX_NAMESPACE=same' is there already", text)
        _, err = first[0].communicate(timeout=100)
        self.assertEqual(first[0].returncode, 1)
        self.assertIn("rank 2 of 3 did not come", err)

    def test_a_link_in_place_of_the_directory(self):
        (first,) = self.launch(["demo"], 2, job="link", ranks=[0])
        self.await_meeting()
        first.kill()
        first.communicate()
        (path,) = pathlib.Path(self.meeting).glob("tandem-launch-*")
        shutil.rmtree(path)
        elsewhere = pathlib.Path(self.folder, "elsewhere")
        elsewhere.mkdir()
        path.symlink_to(elsewhere)
        for rank in (0, 1):
            (process,) = self.launch(["demo"], 2, job="link", ranks=[rank])
            _, err = process.communicate(timeout=100)
            self.assertEqual(process.returncode, 1)
            self.assertIn("link", err)
        self.assertEqual(list(elsewhere.iterdir()), [])

    # ---- ranks that are lost

    def test_a_rank_that_does_not_come(self):
        text = self.refused(1, self.launch(["demo"], 3, ranks=[0, 1], env={"TANDEM_RENDEZVOUS_TIMEOUT_MS": "1500"}))
        self.assertIn("rank 2 of 3 did not come", text)

    def test_rank_0_that_does_not_come(self):
        (process,) = self.launch(["demo"], 3, ranks=[1], env={"TANDEM_RENDEZVOUS_TIMEOUT_MS": "300"})
        ((code, _, err),) = self.wait([process])
        self.assertEqual(code, 1)
        self.assertIn("rank 0 of 3 did not come", err)

    def at_work(self):
        """A launch of three whose ranks run ops."""
        words = ["bench", "all_gather_matmul", "--m", "96", "--n", "64", "--k", "64", "--iterations", "1000000"]
        processes = self.launch(words, 3)
        self.await_session(processes[1])
        return processes

    @staticmethod
    def await_session(process):
        """The process has the memory of a group."""
        while "memfd:tandem-control" not in pathlib.Path(f"/proc/{process.pid}/maps").read_text():
            time.sleep(0.01)

    def test_a_rank_that_is_killed(self):
        processes = self.at_work()
        processes[2].kill()
        ended = self.wait(processes)
        self.assertEqual([code for code, _, _ in ended], [1, 1, -signal.SIGKILL], ended)
        self.assertIn("rank 2", ended[0][2])
        self.assertEqual(ended[1][1:], ("", ""))

    def test_rank_0_that_is_killed(self):
        processes = self.at_work()
        processes[0].kill()
        ended = [(process.communicate(timeout=100)[1], process.returncode) for process in processes]
        self.assertEqual([code for _, code in ended], [-signal.SIGKILL, 1, 1], ended)
        for err, _ in ended[1:]:
            self.assertIn("rank 0", err)

    def test_rank_0_that_is_interrupted(self):
        for kind in (signal.SIGINT, signal.SIGTERM):
            with self.subTest(signal=kind):
                processes = self.at_work()
                processes[0].send_signal(kind)
                ended = [(process.communicate(timeout=100)[1], process.returncode) for process in processes]
                self.assertEqual([code for _, code in ended], [128 + kind, 1, 1], ended)
                self.assertIn(f"interrupted by signal {int(kind)}", ended[0][0])

    # ---- the real one

    def test_mpirun(self):
        mpirun = shutil.which("mpirun")
        if mpirun is None:
            self.skipTest("no mpirun here")
        version = subprocess.run([mpirun, "--version"], capture_output=True, text=True)
        if "Open MPI" not in version.stdout:
            self.skipTest("mpirun is not that of Open MPI")
        flags = ["--allow-run-as-root", "--oversubscribe", "-n", "2"]
        words = [mpirun, *flags, cli_tool.TOOL, "bench", "all_gather_matmul", *SMALL]
        # Its own folder: mpirun's processes have theirs in the temporary directory.
        env = cli_tool.environment_with({"TMPDIR": self.meeting, "OMPI_MCA_rmaps_base_oversubscribe": "1"})
        done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("2 ranks of Open MPI", done.stdout)
        done = subprocess.run([*words, "--ranks", "3"], env=env, capture_output=True, text=True, timeout=100)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(done.stderr.count("Open MPI has started 2 ranks"), 1, done.stderr)


if __name__ == "__main__":
    cli_tool.main("__main__")
