//! Policies cut into pieces that IAM stores: statement by statement, and a statement resource by
//! resource when it is too large alone.

use crate::document::{Document, Resources, Statement};
use crate::size::SizeError;

/// A document under the name that it should be stored by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The policy's name, with `-2`, `-3`, … for pieces after the first.
    pub name: String,
    /// What it says.
    pub document: Document,
}

/// Cuts a policy into pieces of at most `limit` characters, white space not counted. Together the
/// pieces say what the policy says, no more and no less.
///
/// # Errors
/// When one statement is too large though it names a single resource.
pub fn split(name: &str, document: &Document, limit: usize) -> Result<Vec<Piece>, SizeError> {
    let mut documents: Vec<Document> = Vec::new();
    for statement in &document.statements {
        for part in parts(statement, limit, name)? {
            match documents.last_mut() {
                Some(last) if size_with(last, &part) <= limit => last.statements.push(part),
                _ => documents.push(Document::new([part])),
            }
        }
    }
    let numbered = documents.into_iter().enumerate().map(|(i, document)| Piece {
        name: if i == 0 { name.to_owned() } else { format!("{name}-{}", i + 1) },
        document,
    });
    Ok(numbered.collect())
}

fn size_with(document: &Document, statement: &Statement) -> usize {
    let mut larger = document.clone();
    larger.statements.push(statement.clone());
    larger.size()
}

/// The statement in parts that fit. Statement ids are unique in their document, so the parts are
/// numbered.
fn parts(statement: &Statement, limit: usize, policy: &str) -> Result<Vec<Statement>, SizeError> {
    let mut parts = Vec::new();
    halve_until_it_fits(statement.clone(), limit, policy, &mut parts)?;
    for (i, part) in parts.iter_mut().enumerate().skip(1) {
        part.sid = part.sid.as_ref().map(|sid| format!("{sid}{}", i + 1));
    }
    Ok(parts)
}

fn halve_until_it_fits(
    statement: Statement,
    limit: usize,
    policy: &str,
    parts: &mut Vec<Statement>,
) -> Result<(), SizeError> {
    // Room for the number that a part's id gets.
    const NUMBER: usize = 3;
    let size = Document::new([statement.clone()]).size();
    if size + NUMBER <= limit || (size <= limit && parts.is_empty()) {
        parts.push(statement);
        return Ok(());
    }
    match &statement.resources {
        Some(Resources::Only(arns)) if arns.len() > 1 => {
            let (left, right) = arns.split_at(arns.len() / 2);
            for half in [left, right] {
                halve_until_it_fits(statement.clone().on(half), limit, policy, parts)?;
            }
            Ok(())
        }
        _ => Err(SizeError::Managed { name: policy.to_owned(), size }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controller::{NamedPolicy, controller_policies};
    use crate::cover::gaps;
    use crate::size::MANAGED_LIMIT;
    use crate::{Features, Partition, Scope};

    fn policies(n_roles: usize) -> Vec<NamedPolicy> {
        controller_policies(&Scope {
            partition: Partition::Aws,
            region: "eu-central-1".into(),
            account: "123456789012".into(),
            cluster: "c".into(),
            queue: Some("tenon-c".into()),
            node_roles: (0..n_roles)
                .map(|n| format!("arn:aws:iam::123456789012:role/node-{n:04}"))
                .collect(),
            features: Features::default(),
        })
    }

    fn split_all(policies: &[NamedPolicy], limit: usize) -> Result<Vec<Piece>, SizeError> {
        let pieces = policies.iter().map(|one| split(one.part.name(), &one.document, limit));
        Ok(pieces.collect::<Result<Vec<_>, _>>()?.concat())
    }

    fn equal_in_effect(policies: &[NamedPolicy], pieces: &[Piece]) {
        for policy in policies {
            assert_eq!(gaps(pieces.iter().map(|piece| &piece.document), &policy.document), []);
        }
        for piece in pieces {
            assert_eq!(gaps(policies.iter().map(|policy| &policy.document), &piece.document), []);
        }
    }

    #[test]
    fn what_fits_stays_in_one_piece() {
        let policies = policies(1);
        let pieces = split_all(&policies, MANAGED_LIMIT).unwrap();
        assert_eq!(pieces.len(), policies.len());
        assert!(
            pieces.iter().zip(&policies).all(|(piece, policy)| piece.document == policy.document)
        );
    }

    #[test]
    fn every_piece_fits_and_together_they_say_the_same() {
        for (n_roles, limit) in [(500, MANAGED_LIMIT), (1, 1_000), (40, 1_500)] {
            let policies = policies(n_roles);
            let pieces = split_all(&policies, limit).unwrap();
            assert!(pieces.len() > policies.len());
            for piece in &pieces {
                assert!(
                    piece.document.size() <= limit,
                    "{}: {}",
                    piece.name,
                    piece.document.size()
                );
                let mut sids =
                    piece.document.statements.iter().map(|one| &one.sid).collect::<Vec<_>>();
                sids.sort();
                sids.dedup();
                assert_eq!(sids.len(), piece.document.statements.len(), "{}", piece.name);
            }
            equal_in_effect(&policies, &pieces);
        }
    }

    #[test]
    fn a_statement_that_can_not_be_cut_is_an_error() {
        assert!(matches!(split_all(&policies(1), 100), Err(SizeError::Managed { .. })));
    }
}
