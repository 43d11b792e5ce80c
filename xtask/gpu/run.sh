#!/bin/sh
# Runs on a machine with a GPU: needs its driver and Python 3.10 or later with NumPy; PyTorch, CuPy and
# compute-sanitizer are used where they are. One line per check, `ok NAME FIGURES` or `FAIL NAME WHY`; what each
# said in full is in logs/. `sh run.sh NAME…` runs these parts only.
cd "$(dirname "$0")" || exit 2
mkdir -p logs site
export ARENITE_CUDA_PROGRAMS="$PWD/programs" PYTHONPATH="$PWD/site" PYTHONUNBUFFERED=1
chmod +x cuda_tests cuda_bench
case "$1" in
--rust) rust=1 ;;
--memcheck) memcheck=1 ;;
*) wanted=" $* " ;;
esac

# Runs a command whose lines `ok …` and `FAIL …` are its checks; one that ends badly is a failed check itself.
part() {
    name=$1
    shift
    case "$wanted" in
    "  " | *" $name "*) ;;
    *) return ;;
    esac
    timeout 280 "$@" > "logs/$name.txt" 2> "logs/$name.err"
    status=$?
    grep -E '^(ok|FAIL) ' "logs/$name.txt"
    if [ "$status" -ne 0 ] && ! grep -q '^FAIL ' "logs/$name.txt"; then
        echo "FAIL $name ended with $status: $(cat "logs/$name.txt" "logs/$name.err" | grep -v '^ *$' | tail -n 1)" |
            tee -a "logs/$name.txt"
    fi
}

# The tests compiled by Rust, each in a process of its own.
rust_tests() {
    for test in $(./cuda_tests --ignored --list 2> /dev/null | sed -n 's/: test$//p'); do
        if ./cuda_tests --ignored --exact --nocapture "$test" > "logs/one_test.log" 2>&1; then
            echo "ok $test"
        else
            echo "FAIL $test $(grep -A1 'panicked at' logs/one_test.log | tail -n 1)"
        fi
        sed 's/^/  /' logs/one_test.log
    done
    if ./cuda_tests --ignored --test-threads=1 > logs/one_test.log 2>&1; then
        echo "ok all_tests_in_one_process"
    else
        echo "FAIL all_tests_in_one_process $(grep -A1 'panicked at' logs/one_test.log | tail -n 1)"
    fi
}

memcheck() {
    if ! command -v compute-sanitizer > /dev/null; then
        echo "compute-sanitizer is not there: not run"
        return
    fi
    for test in every_program captured_programs state_stays; do
        if compute-sanitizer --tool memcheck --leak-check full --error-exitcode 9 \
            ./cuda_tests --ignored --test-threads=1 "programs::$test" > logs/one_memcheck.log 2>&1; then
            echo "ok memcheck_$test $(grep -E 'ERROR SUMMARY|LEAK SUMMARY' logs/one_memcheck.log | sed 's/=* *//' | tr '\n' ' ')"
        else
            echo "FAIL memcheck_$test $(grep -E 'ERROR SUMMARY|LEAK SUMMARY' logs/one_memcheck.log | tr '\n' ' ')"
        fi
        sed 's/^/  /' logs/one_memcheck.log
    done
}

# These two are parts of their own: this script calls itself for them, so that they can be stopped in time.
[ -n "$rust" ] && rust_tests && exit
[ -n "$memcheck" ] && memcheck && exit

for name in *.whl; do
    python3 -c "import sys, zipfile; zipfile.ZipFile(sys.argv[1]).extractall('site')" "$name" || exit 2
done
(nvidia-smi; uname -a; python3 --version; nproc) > logs/machine.txt 2>&1
python3 checks.py machine
part rust sh run.sh --rust
part exact python3 checks.py exact
python3 -c 'import torch' 2> /dev/null && part exact_after_torch python3 checks.py torch exact
part snippet python3 checks.py snippet
part report python3 checks.py report
part device_tensors python3 checks.py device_tensors
part adapters python3 checks.py adapters
part refusals python3 checks.py refusals
part processes python3 checks.py processes
part two_devices python3 checks.py two_devices
part cases python3 checks.py cases
part cycles python3 checks.py cycles
part loads python3 checks.py loads
part times python3 checks.py times
part peers python3 checks.py torch peers
part bench ./cuda_bench --bench
part memcheck sh run.sh --memcheck
failed=$(cat logs/*.txt | grep -c '^FAIL ')
echo "$failed failed"
[ "$failed" -eq 0 ]
