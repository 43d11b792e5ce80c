// Times MiniMalloc's solve call: minimalloc_time CAPACITY FILE.csv
//
// Solves the problem once for every line on standard input, and answers each with a line: the processor time of
// the call in seconds, then the height of the plan (-1 if it gave none). So another program can take turns with it.

#include <ctime>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "converter.h"
#include "minimalloc.h"
#include "solver.h"

static double ProcessorSeconds() {
  timespec time;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return time.tv_sec + time.tv_nsec * 1e-9;
}

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: minimalloc_time CAPACITY FILE.csv\n");
    return 2;
  }
  std::ifstream file(argv[2]);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  auto problem = minimalloc::FromCsv(text);
  if (!problem.ok()) {
    std::fprintf(stderr, "%s cannot be read as a problem\n", argv[2]);
    return 1;
  }
  problem->capacity = std::atoll(argv[1]);
  const minimalloc::SolverParams params;
  for (std::string line; std::getline(std::cin, line);) {
    minimalloc::Solver solver(params);
    const double from = ProcessorSeconds();
    auto solution = solver.Solve(*problem);
    const double to = ProcessorSeconds();
    std::printf("%.9f %lld\n", to - from, solution.ok() ? static_cast<long long>(solution->height) : -1);
    std::fflush(stdout);
  }
}
