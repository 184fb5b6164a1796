//! The program that picks a socket of a `SO_REUSEPORT` group for a new connection.
//!
//! Classic BPF, since it needs no privilege. The kernel runs it once for each new connection; what it returns is an
//! index in the group. An index that no longer exists makes the kernel fall back to its own hash, so a program that is
//! a moment out of date loses nothing.

/// One instruction, as the kernel's `struct sock_filter` has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Instruction {
    /// What it does.
    pub(super) code: u16,
    /// How many instructions to skip when a comparison holds.
    pub(super) jt: u8,
    /// How many to skip when it does not.
    pub(super) jf: u8,
    /// Its operand.
    pub(super) k: u32,
}

/// Why a group can't be steered so.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SteerError {
    /// Nobody would be left to answer.
    #[error("no socket to steer to")]
    NoTarget,
    /// Not a member of the group.
    #[error("socket {index} is not in a group of {total}")]
    OutOfRange {
        /// The index asked for.
        index: u32,
        /// How many sockets the group has.
        total: u32,
    },
    /// Longer than the kernel takes.
    #[error("{targets} sockets are more than one program can choose from")]
    TooMany {
        /// How many were asked for.
        targets: usize,
    },
}

const LD_W_ABS: u16 = 0x20;
const ALU_MOD_K: u16 = 0x94;
const JMP_JEQ_K: u16 = 0x15;
const RET_K: u16 = 0x06;
/// `SKF_AD_OFF + SKF_AD_RANDOM`: a load from here yields a random word, not packet data.
const RANDOM: u32 = (-0x1000_i32 + 56) as u32;
/// `BPF_MAXINSNS`.
const LONGEST: usize = 4096;

/// The program that spreads new connections evenly over `targets`, indices in a group of `total` sockets.
pub(super) fn program(targets: &[u32], total: u32) -> Result<Vec<Instruction>, SteerError> {
    let mut targets = targets.to_vec();
    targets.sort_unstable();
    targets.dedup();
    if let Some(&index) = targets.iter().find(|&&index| index >= total) {
        return Err(SteerError::OutOfRange { index, total });
    }
    let Some((&last, others)) = targets.split_last() else { return Err(SteerError::NoTarget) };
    let mut program = Vec::with_capacity(2 * targets.len() + 1);
    if !others.is_empty() {
        program.push(Instruction { code: LD_W_ABS, jt: 0, jf: 0, k: RANDOM });
        program.push(Instruction { code: ALU_MOD_K, jt: 0, jf: 0, k: targets.len() as u32 });
        for (drawn, &index) in others.iter().enumerate() {
            program.push(Instruction { code: JMP_JEQ_K, jt: 0, jf: 1, k: drawn as u32 });
            program.push(Instruction { code: RET_K, jt: 0, jf: 0, k: index });
        }
    }
    program.push(Instruction { code: RET_K, jt: 0, jf: 0, k: last });
    if program.len() > LONGEST { Err(SteerError::TooMany { targets: targets.len() }) } else { Ok(program) }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What the kernel's interpreter does with the few instructions in use.
    fn run(program: &[Instruction], random: u32) -> u32 {
        let (mut a, mut at) = (0, 0);
        loop {
            let i = program[at];
            at += 1;
            match i.code {
                LD_W_ABS => a = random,
                ALU_MOD_K => a %= i.k,
                JMP_JEQ_K => at += usize::from(if a == i.k { i.jt } else { i.jf }),
                RET_K => return i.k,
                other => panic!("unknown instruction {other:#x}"),
            }
        }
    }

    #[test]
    fn one_target_is_one_instruction() {
        assert_eq!(program(&[3], 4), Ok(vec![Instruction { code: RET_K, jt: 0, jf: 0, k: 3 }]));
        assert_eq!(program(&[3, 3], 4).map(|p| p.len()), Ok(1));
    }

    #[test]
    fn what_the_group_does_not_have_is_refused() {
        assert_eq!(program(&[], 4), Err(SteerError::NoTarget));
        assert_eq!(program(&[0, 4], 4), Err(SteerError::OutOfRange { index: 4, total: 4 }));
        let all: Vec<u32> = (0..3000).collect();
        assert_eq!(program(&all, 3000), Err(SteerError::TooMany { targets: 3000 }));
        assert!(program(&all[..1024], 3000).is_ok(), "as many as there may be shards");
    }

    proptest! {
        /// Contract: P4.
        #[test]
        fn every_target_gets_its_even_share_and_nobody_else_gets_any(
            targets in proptest::collection::btree_set(0_u32..64, 1..20)
        ) {
            let targets: Vec<u32> = targets.into_iter().collect();
            let program = program(&targets, 64).expect("in range");
            let mut seen = std::collections::BTreeMap::<u32, u32>::new();
            for random in 0..targets.len() as u32 * 10 {
                *seen.entry(run(&program, random)).or_default() += 1;
            }
            prop_assert_eq!(seen.keys().copied().collect::<Vec<_>>(), targets);
            prop_assert!(seen.values().all(|&n| n == 10));
        }
    }
}
