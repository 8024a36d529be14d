#include <gtest/gtest.h>

#include <map>
#include <string>
#include <tandem/bootstrap/launched.hpp>

namespace tandem {
namespace {

using Variables = std::map<std::string, std::string>;

Result<std::optional<LaunchedRank>> parse(const Variables& variables) {
  return launched_rank([&](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() || found->second.empty() ? std::nullopt : std::optional(found->second);
  });
}

Variables with(Variables variables, const Variables& others) {
  for (const auto& [name, value] : others) variables[name] = value;
  return variables;
}

const Variables kOpenMpi = {
    {"OMPI_COMM_WORLD_RANK", "2"},       {"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "2"},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}, {"PMIX_NAMESPACE", "77"},      {"OMPI_MCA_ess_base_jobid", "78"}};
const Variables kMpich = {
    {"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "2"}};
const Variables kTorchrun = {{"RANK", "5"},
                             {"WORLD_SIZE", "8"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "4"},
                             {"TORCHELASTIC_RUN_ID", "none"},
                             {"TORCHELASTIC_RESTART_COUNT", "1"},
                             {"MASTER_ADDR", "host"},
                             {"MASTER_PORT", "29500"}};
const Variables kSlurm = {{"SLURM_PROCID", "3"},  {"SLURM_NTASKS", "6"},  {"SLURM_LOCALID", "1"},
                          {"SLURM_JOB_ID", "11"}, {"SLURM_STEP_ID", "0"}, {"SLURM_TASKS_PER_NODE", "2(x3)"},
                          {"SLURM_NODEID", "1"}};

struct Good {
  std::string name;
  Variables variables;
  LaunchedRank expected;
};

class LaunchedRankOf : public testing::TestWithParam<Good> {};

TEST_P(LaunchedRankOf, IsWhatTheLauncherSays) {
  const auto got = parse(GetParam().variables);
  ASSERT_TRUE(got) << got.error().text();
  ASSERT_TRUE(*got);
  const LaunchedRank& expected = GetParam().expected;
  EXPECT_EQ((*got)->rank, expected.rank);
  EXPECT_EQ((*got)->size, expected.size);
  EXPECT_EQ((*got)->local_rank, expected.local_rank);
  EXPECT_EQ((*got)->local_size, expected.local_size);
  EXPECT_EQ((*got)->launcher, expected.launcher);
  EXPECT_EQ((*got)->job, expected.job);
}

INSTANTIATE_TEST_SUITE_P(
    Launchers, LaunchedRankOf,
    testing::Values(
        Good{"open_mpi", kOpenMpi, {2, 4, 2, 4, "Open MPI", "PMIX_NAMESPACE=77"}},
        Good{"open_mpi_4",
             with(kOpenMpi, {{"PMIX_NAMESPACE", ""}}),
             {2, 4, 2, 4, "Open MPI", "OMPI_MCA_ess_base_jobid=78"}},
        Good{"mpich", kMpich, {1, 2, 1, 2, "MPICH", ""}},
        Good{"torchrun",
             kTorchrun,
             {5, 8, 1, 4, "torchrun",
              "TORCHELASTIC_RUN_ID=none TORCHELASTIC_RESTART_COUNT=1 MASTER_ADDR=host MASTER_PORT=29500"}},
        Good{"torchrun_variables_by_hand",
             {{"RANK", "0"}, {"WORLD_SIZE", "1"}, {"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", "1"}},
             {0, 1, 0, 1, "torchrun", ""}},
        Good{"slurm", kSlurm, {3, 6, 1, 2, "Slurm", "SLURM_JOB_ID=11 SLURM_STEP_ID=0"}},
        Good{"slurm_step_of_a_larger_job",
             with(kSlurm, {{"SLURM_NTASKS", "9"},
                           {"SLURM_STEP_NUM_TASKS", "6"},
                           {"SLURM_STEP_TASKS_PER_NODE", "1,4,1"}}),
             {3, 6, 1, 4, "Slurm", "SLURM_JOB_ID=11 SLURM_STEP_ID=0"}},
        Good{"slurm_by_pmi2",
             with(kSlurm, {{"PMI_RANK", "3"}, {"PMI_SIZE", "6"}}),
             {3, 6, 1, 2, "Slurm", "SLURM_JOB_ID=11 SLURM_STEP_ID=0"}},
        Good{"mpirun_in_a_step", with(kSlurm, kOpenMpi), {2, 4, 2, 4, "Open MPI", "PMIX_NAMESPACE=77"}},
        Good{"a_named_launcher",
             with(with(kTorchrun, kOpenMpi), {{"TANDEM_LAUNCHER", "openmpi"}}),
             {2, 4, 2, 4, "Open MPI", "PMIX_NAMESPACE=77"}},
        Good{"a_named_job", with(kMpich, {{"TANDEM_JOB", "x"}}), {1, 2, 1, 2, "MPICH", "TANDEM_JOB=x"}}),
    [](const auto& one) { return one.param.name; });

struct None {
  std::string name;
  Variables variables;
};

class NoLaunchedRank : public testing::TestWithParam<None> {};

TEST_P(NoLaunchedRank, IsFound) {
  const auto got = parse(GetParam().variables);
  ASSERT_TRUE(got) << got.error().text();
  EXPECT_FALSE(*got);
}

INSTANTIATE_TEST_SUITE_P(
    Launchers, NoLaunchedRank,
    testing::Values(
        None{"no_variables", {}}, None{"the_job_alone", {{"TANDEM_JOB", "x"}}},
        None{"ignored", with(kOpenMpi, {{"TANDEM_LAUNCHER", "none"}})},
        None{"ignored_with_bad_values",
             with(kOpenMpi, {{"TANDEM_LAUNCHER", "none"}, {"OMPI_COMM_WORLD_RANK", "x"}})},
        None{"a_rank_of_something_else", {{"RANK", "general"}}},
        None{"slurm_allocation", {{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "4"}}},
        None{"slurm_batch_script",
             {{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "0"}, {"SLURM_LOCALID", "0"}}},
        None{"slurm_batch_step", with(kSlurm, {{"SLURM_STEP_ID", "4294967291"}})},
        None{"slurm_terminal", with(kSlurm, {{"SLURM_PTY_PORT", "4711"}})}),
    [](const auto& one) { return one.param.name; });

struct Bad {
  std::string name;
  Variables variables;
  std::string text;
};

class BadLaunchedRank : public testing::TestWithParam<Bad> {};

TEST_P(BadLaunchedRank, IsRefusedWithVariableValueAndRemedy) {
  const auto got = parse(GetParam().variables);
  ASSERT_FALSE(got);
  EXPECT_EQ(got.error().code(), ErrorCode::kInvalidArgument);
  EXPECT_NE(got.error().text().find(GetParam().text), std::string::npos) << got.error().text();
  EXPECT_NE(got.error().text().find("TANDEM_LAUNCHER"), std::string::npos) << got.error().text();
}

INSTANTIATE_TEST_SUITE_P(
    Launchers, BadLaunchedRank,
    testing::Values(
        Bad{"no_size", with(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", ""}}), "OMPI_COMM_WORLD_SIZE is not set"},
        Bad{"no_rank", with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", ""}}), "OMPI_COMM_WORLD_RANK is not set"},
        Bad{"no_local_rank", with(kMpich, {{"MPI_LOCALRANKID", ""}}), "MPI_LOCALRANKID is not set"},
        Bad{"no_local_size", with(kTorchrun, {{"LOCAL_WORLD_SIZE", ""}}), "LOCAL_WORLD_SIZE is not set"},
        Bad{"torchrun_without_rank", with(kTorchrun, {{"RANK", ""}}), "RANK is not set"},
        Bad{"no_number", with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "two"}}), "OMPI_COMM_WORLD_RANK='two'"},
        Bad{"more_than_a_number", with(kTorchrun, {{"RANK", "5x"}}), "RANK='5x'"},
        Bad{"negative", with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "-1"}}), "OMPI_COMM_WORLD_RANK='-1'"},
        Bad{"no_ranks", with(kMpich, {{"PMI_SIZE", "0"}}), "PMI_SIZE='0'"},
        Bad{"huge", with(kMpich, {{"PMI_SIZE", "99999999999999999999"}}), "PMI_SIZE='99999999999999999999'"},
        Bad{"rank_out_of_range", with(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "4"}}),
            "OMPI_COMM_WORLD_RANK=4 and OMPI_COMM_WORLD_SIZE=4"},
        Bad{"local_rank_out_of_range", with(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}}),
            "OMPI_COMM_WORLD_LOCAL_RANK=2 and OMPI_COMM_WORLD_LOCAL_SIZE=2"},
        Bad{"more_here_than_anywhere", with(kTorchrun, {{"LOCAL_WORLD_SIZE", "9"}}),
            "LOCAL_WORLD_SIZE=9 and WORLD_SIZE=8"},
        Bad{"two_launchers", with(kTorchrun, kOpenMpi), "torchrun says rank 5 of 8"},
        Bad{"slurm_step", with(kSlurm, {{"SLURM_STEP_ID", "x"}}), "SLURM_STEP_ID='x'"},
        Bad{"slurm_without_local_rank", with(kSlurm, {{"SLURM_LOCALID", ""}}), "SLURM_LOCALID is not set"},
        Bad{"slurm_without_size", with(kSlurm, {{"SLURM_NTASKS", ""}}), "SLURM_NTASKS is not set"},
        Bad{"slurm_without_tasks", with(kSlurm, {{"SLURM_TASKS_PER_NODE", ""}}),
            "SLURM_TASKS_PER_NODE is not set"},
        Bad{"slurm_tasks", with(kSlurm, {{"SLURM_TASKS_PER_NODE", "2(y3)"}}), "SLURM_TASKS_PER_NODE='2(y3)'"},
        Bad{"slurm_empty_host", with(kSlurm, {{"SLURM_TASKS_PER_NODE", "6,"}}), "SLURM_TASKS_PER_NODE='6,'"},
        Bad{"slurm_many_hosts", with(kSlurm, {{"SLURM_TASKS_PER_NODE", "6(x9999999)"}}),
            "SLURM_TASKS_PER_NODE='6(x9999999)'"},
        Bad{"slurm_sum", with(kSlurm, {{"SLURM_TASKS_PER_NODE", "2(x2)"}}),
            "SLURM_TASKS_PER_NODE=2(x2) and SLURM_NTASKS=6"},
        Bad{"slurm_host", with(kSlurm, {{"SLURM_NODEID", "3"}}), "SLURM_NODEID=3"},
        Bad{"unknown_launcher", {{"TANDEM_LAUNCHER", "mpirun"}}, "TANDEM_LAUNCHER='mpirun'"},
        Bad{"absent_launcher", with(kOpenMpi, {{"TANDEM_LAUNCHER", "slurm"}}), "TANDEM_LAUNCHER='slurm'"}),
    [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace tandem
