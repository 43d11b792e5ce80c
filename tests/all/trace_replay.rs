//! Traces: small, read back as written, replayed elsewhere, and honest about where they go wrong.

use crate::support::numbers::Numbers;
use arenite::trace::{self, Event, Refusal, Take, Trace, Traced, Why};
use arenite::{Arena, DeviceRegion, HostSpace, Limited, Mark, Pool, Request, SpaceId};
use core::alloc::Layout;
use proptest::prelude::*;

fn layout(size: usize, align: usize) -> Layout {
    Layout::from_size_align(size, align).unwrap()
}

/// A workload with tags, streams, several threads and refusals.
fn workload(trace: &Trace, steps: usize) {
    let pool = Pool::new(DeviceRegion::imaginary(SpaceId::cuda(1), 4 << 20))
        .with_name("kv")
        .with_limit(2 << 20)
        .with_observer(trace.clone());
    let (stream, tag) = (pool.add_stream().unwrap(), pool.tag("weights").unwrap());
    std::thread::scope(|threads| {
        for thread in 0..2 {
            let pool = &pool;
            threads.spawn(move || {
                let mut numbers = Numbers::new(thread);
                let mut live = Vec::new();
                for step in 0..steps {
                    if live.len() > 12 || (step % 3 == 2 && !live.is_empty()) {
                        let block: arenite::PoolBlock<_> = live.swap_remove(numbers.below(live.len()));
                        if step % 2 == 0 {
                            block.release_after(Mark { stream, value: step as u64 });
                        }
                    } else {
                        let size = 1 + numbers.below(if step % 50 == 0 { 3 << 20 } else { 4000 });
                        let mut request = Request::new(layout(size, 1 << numbers.below(9)));
                        request = if step % 4 == 0 { request.on(stream) } else { request };
                        request = if step % 5 == 0 { request.tagged(tag) } else { request };
                        live.extend(pool.acquire(&request).ok().map(|acquired| acquired.block));
                    }
                }
            });
        }
    });
}

#[test]
fn an_event_takes_at_most_sixteen_bytes_on_average_and_reads_back() {
    let trace = Trace::new();
    workload(&trace, 3000);
    let bytes = trace.to_bytes();
    let events = Trace::events(&bytes).unwrap();
    let takes = |event: &&Event| matches!(event, Event::Take(_));
    assert!(bytes.len() <= 16 * events.len(), "{} bytes for {} events", bytes.len(), events.len());
    assert!(events.iter().filter(takes).count() > 2000);
    let refused = events.iter().filter(|event| matches!(event, Event::Take(Take { answer: Err(_), .. })));
    assert!(refused.count() > 10);
    let summary = trace::verify(&events).unwrap();
    assert_eq!((summary.left_bytes, summary.events), (0, events.len()));
    let Event::Take(first) = events[0] else { panic!() };
    assert_eq!((first.context.space, first.context.arena.as_str()), (SpaceId::cuda(1), "kv"));
}

#[test]
fn a_trace_replays_on_the_same_pool_and_names_the_first_event_that_goes_another_way() {
    let trace = Trace::new();
    let make = |bytes| Pool::new(DeviceRegion::imaginary(SpaceId::cuda(0), bytes)).with_name("kv");
    {
        let pool = make(1 << 20).with_observer(trace.clone());
        let kept: Vec<_> = (0..10).map(|_| pool.allocate(layout(100_000, 256)).unwrap()).collect();
        assert!(pool.allocate(layout(100_000, 256)).is_err());
        drop(kept);
    }
    let events = Trace::events(&trace.to_bytes()).unwrap();
    assert_eq!(trace::replay(&events, &make(1 << 20)).unwrap().peak_bytes, 1_000_000);
    let smaller = trace::replay(&events, &make(1 << 19)).unwrap_err();
    assert_eq!((smaller.index, smaller.why), (5, Why::RefusedNow(Refusal::NotNow)));
    assert!(
        smaller
            .to_string()
            .starts_with("event 5 (take 5 of 100000 bytes at 256 from cuda:0, pool kv, stream 0, thread"),
        "{smaller}"
    );
    let larger = trace::replay(&events, &make(1 << 21)).unwrap_err();
    assert_eq!((larger.index, larger.why), (10, Why::ServedNow));
}

#[test]
fn wrong_traces_are_found_at_the_event() {
    let trace = Trace::new();
    drop(Pool::new(HostSpace::new()).with_observer(trace.clone()).allocate(layout(100, 64)).unwrap());
    let good = Trace::events(&trace.to_bytes()).unwrap();
    let Event::Take(take) = good[0] else { panic!() };
    let why = |events: &[Event]| trace::verify(events).unwrap_err().why;
    let second = Event::Take(Take { id: 1, answer: take.answer.map(|address| address + 64), ..take });
    assert_eq!(why(&[good[0], second]), Why::Overlaps(0));
    let odd = Event::Take(Take { answer: Ok(0x101), ..take });
    assert_eq!(why(&[odd]), Why::Misaligned);
    assert_eq!(why(&[good[0], good[1], good[1]]), Why::NotLive);
    assert_eq!(why(&[Event::GiveUnknown { address: 1, thread: 0 }]), Why::NotLive);
    assert_eq!(why(&[Event::Take(Take { align: 3, ..take })]), Why::NoLayout);
}

#[test]
fn spaces_are_traced_also_where_memory_comes_and_goes_in_parts() {
    for space in [HostSpace::new(), HostSpace::new().with_exact_blocks()] {
        let trace = Trace::new();
        {
            let mut arena = Arena::new(Traced::new(Limited::new(space, 8 << 20), &trace));
            for round in 0..3 {
                arena.allocate(layout((1 + round) << 20, 64)).unwrap();
                assert!(arena.allocate(layout(9 << 20, 64)).is_err());
                arena.reset();
                arena.trim_to(300_000);
            }
        }
        let summary = trace::verify(&Trace::events(&trace.to_bytes()).unwrap()).unwrap();
        assert_eq!(summary.left_bytes, 0);
        assert!(summary.served >= 3 && summary.refused >= 3, "{summary:?}");
    }
}

#[test]
fn rmms_log_is_read_with_streams_and_failures() {
    let log = "Thread,Time,Action,Pointer,Size,Stream\n\
               11,10:33:05:911523,allocate,0x7f1c3a000000,1048576,0x0\n\
               12,10:33:05:911600,allocate,0x7f1c3a100000,512,0x55d0\n\
               12,10:33:05:911700,allocate failure,(nil),99999999999,0x55d0\n\
               11,10:33:06:004211,free,0x7f1c3a000000,1048576,0x0\n\
               12,10:33:06:004300,free,0x7f1c3a100000,512,0x55d0\n";
    let events = trace::parse_rmm(log).unwrap();
    let summary = trace::verify(&events).unwrap();
    assert_eq!((summary.served, summary.refused, summary.left_bytes), (2, 1, 0));
    let streams: Vec<u16> = events
        .iter()
        .filter_map(|event| if let Event::Take(take) = event { Some(take.context.stream) } else { None })
        .collect();
    assert_eq!(streams, [1, 2, 2]);
    let pool = Pool::new(DeviceRegion::imaginary(SpaceId::cuda(0), 1 << 30));
    assert_eq!(trace::replay(&events, &pool).unwrap(), summary);
    for (line, text) in [(2, "1,2,3"), (2, "1,t,allocate,zz,8,0x0"), (2, "1,t,take,0x1,8,0x0")] {
        let error =
            trace::parse_rmm(&format!("Thread,Time,Action,Pointer,Size,Stream\n{text}\n")).unwrap_err();
        assert_eq!(error.offset, line, "{text}");
    }
}

#[test]
fn a_picture_has_a_box_for_each_block_and_stands_alone() {
    let trace = Trace::new();
    workload(&trace, 200);
    let events = Trace::events(&trace.to_bytes()).unwrap();
    let svg = trace::to_svg(&events, "a <small> one");
    let served = trace::verify(&events).unwrap().served;
    assert_eq!(svg.matches("<title>").count(), served);
    assert!(svg.contains("a &lt;small&gt; one") && svg.ends_with("</svg>\n"));
    assert!(!svg.contains("href") && !svg.contains("NaN") && !svg.contains("inf"));
    assert!(trace::to_svg(&[], "nothing").ends_with("</svg>\n"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn broken_bytes_are_errors(cut in any::<prop::sample::Index>(), at in any::<prop::sample::Index>(), bit in 0u8..8) {
        let trace = Trace::new();
        workload(&trace, 30);
        let mut bytes = trace.to_bytes();
        bytes.truncate(cut.index(bytes.len()) + 1);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        if let Ok(events) = Trace::events(&bytes) {
            let _ = trace::verify(&events);
            let _ = trace::to_svg(&events, "broken");
            let _ = trace::replay(&events, &Pool::new(DeviceRegion::imaginary(SpaceId::cuda(0), 1 << 30)));
        }
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Trace::events(&[b"arenite1".as_slice(), &bytes].concat());
        let _ = trace::parse_rmm(&String::from_utf8_lossy(&bytes));
    }
}
