(** Action masks: a forbidden action is made another name of an allowed one.  What is claimed of that model is true of all
    policies that play allowed actions. *)
Require Import Reals Lra Lia List Arith Bool.
From EBPI Require Import Sums Model Main.
Open Scope R_scope.

Section Masks.
Variable M : mdp.
Variable alias : nat -> nat -> nat -> nat.  (* of an action that is allowed with n steps to go in state s: itself *)

Definition masked : mdp :=
  {| amax := amax M; row := fun n s a => row M n s (alias n s a); K := K M; nxt := fun n s a => nxt M n s (alias n s a) |}.
Definition masked_claim (c : claim) : claim :=
  {| c_beta := c_beta c; c_eps := c_eps c; c_low := c_low c; c_up := c_up c; c_pi := c_pi c; c_H := c_H c; c_s1 := c_s1 c;
     c_rew := fun n s a => c_rew c n s (alias n s a) |}.
Definition plays_allowed (sig : memory -> nat -> nat -> nat -> R) : Prop :=
  forall past n s a, alias n s a <> a -> sig past n s a = 0.

Lemma masked_return p rew beta sig : plays_allowed sig -> forall n past s paid,
  Ereturn masked p (fun n s a => rew n s (alias n s a)) beta sig n past s paid = Ereturn M p rew beta sig n past s paid.
Proof.
  intros A n. induction n as [|n IH]; intros past s paid; [reflexivity|]. simpl. unfold mean at 1 3. apply rsum_ext. intros a _.
  destruct (Nat.eq_dec (alias n s a) a) as [E|E].
  - f_equal. rewrite E. apply mean_ext. intros j _. rewrite IH. reflexivity.
  - rewrite (A past n s a E). lra.
Qed.

Theorem masks_sound c p : (forall n s, alias n s (c_pi c n s) = c_pi c n s) -> claim_true masked p (masked_claim c) ->
  c_low c <= V_of M p c (det (c_pi c)) /\
  forall sig, proper M sig -> plays_allowed sig ->
    V_of M p c sig <= c_up c /\ V_of M p c sig <= V_of M p c (det (c_pi c)) + c_eps c.
Proof.
  intros Hpi [L U].
  assert (E : forall sig, plays_allowed sig -> V_of masked p (masked_claim c) sig = V_of M p c sig).
  { intros sig A. unfold V_of, V. simpl. rewrite masked_return; auto. }
  assert (A : plays_allowed (det (c_pi c))).
  { intros past n s a N. unfold det. destruct (Nat.eqb_spec a (c_pi c n s)) as [->|]; [exfalso; apply N, Hpi|reflexivity]. }
  change (c_pi (masked_claim c)) with (c_pi c) in L. rewrite (E _ A) in L. split; [exact L|].
  intros sig P As. specialize (U sig P). change (c_pi (masked_claim c)) with (c_pi c) in U. rewrite (E _ A), (E _ As) in U. exact U.
Qed.
End Masks.
